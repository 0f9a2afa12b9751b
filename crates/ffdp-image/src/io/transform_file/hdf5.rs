//! ITK's transforms in HDF5: `composite.h5` of ANTs, SimpleITK and ITK.
//!
//! ```text
//! /TransformGroup/0/TransformType                                CompositeTransform_double_3_3
//! /TransformGroup/1/TransformType, TransformParameters, TransformFixedParameters
//! /TransformGroup/2/..
//! ```
//! ITK before 5 wrote `TranformParameters` and `TranformFixedParameters`, without the s.

use std::io;
use std::path::Path;

use hdf5_pure::{
    CharacterSet, Dataset, Datatype, File, FileBuilder, LibVer, StringPadding, make_u8_type,
};

use super::parts::ItkTransform;
use crate::error::{Error, Result};
use crate::io::{check_memory, write_atomically};

const FIX: &str = "write it again with ANTs or SimpleITK, or store its parts in files of their own";

/// The transforms in the order of their numbers.
pub(super) fn read(path: &Path) -> Result<Vec<ItkTransform>> {
    let wrong =
        |what: String, reason: &dyn ToString| Error::file(path, &what, reason.to_string(), FIX);
    let file = File::open_streaming(path)
        .map_err(|error| wrong("the file must be sound HDF5".into(), &error))?;
    let groups = file
        .group("TransformGroup")
        .and_then(|group| group.groups())
        .map_err(|error| wrong("a file of transforms has /TransformGroup".into(), &error))?;
    let transform = |number: usize| {
        let group = format!("TransformGroup/{number}");
        let kind = format!("{group}/TransformType");
        let name = file.dataset(&kind).and_then(|data| data.read_string());
        let name = name.map_err(|error| wrong(format!("{kind} must be a name"), &error))?;
        let numbers = |names: [&str; 2]| {
            let path_of = |name: &str| format!("{group}/{name}");
            let found = names.iter().find_map(|name| file.dataset(&path_of(name)).ok());
            // A composite and the identity have none.
            found.map_or(Ok(Vec::new()), |data| read_numbers(&data, &path_of(names[0]), path))
        };
        Ok(ItkTransform {
            name: name.concat(),
            parameters: numbers(["TransformParameters", "TranformParameters"])?,
            fixed_parameters: numbers(["TransformFixedParameters", "TranformFixedParameters"])?,
        })
    };
    (0..groups.len()).map(transform).collect()
}

fn read_numbers(data: &Dataset, name: &str, path: &Path) -> Result<Vec<f64>> {
    let failed = |reason: &dyn ToString| {
        Error::file(path, format!("{name} must be numbers"), reason.to_string(), FIX)
    };
    let shape = data.shape().map_err(|error| failed(&error))?;
    let count = shape.iter().try_fold(8u64, |bytes, &n| bytes.checked_mul(n));
    check_memory(&format!("{}: {name}", path.display()), count.unwrap_or(u64::MAX))?;
    data.read_f64().map_err(|error| failed(&error))
}

/// Writes transforms by their numbers as ITK does, uncompressed: so HDF5 1.8 reads them, too. The file
/// appears whole or not at all.
pub(super) fn write(path: &Path, transforms: &[ItkTransform]) -> Result<()> {
    let mut file = FileBuilder::new();
    file.with_libver_bounds(LibVer::Earliest, LibVer::V18);
    let mut all = file.create_group("TransformGroup");
    for (number, transform) in transforms.iter().enumerate() {
        let ItkTransform { name, parameters, fixed_parameters } = transform;
        let mut group = all.create_group(&number.to_string());
        let kind = group.create_dataset("TransformType");
        kind.with_vlen_strings(&[name]).with_dtype(ascii_of_any_length());
        let lists =
            [("TransformParameters", parameters), ("TransformFixedParameters", fixed_parameters)];
        // A composite has none.
        for (name, numbers) in lists.into_iter().filter(|(_, numbers)| !numbers.is_empty()) {
            group.create_dataset(name).with_f64_data(numbers);
        }
        all.add_group(group.finish());
    }
    file.add_group(all.finish());
    write_atomically(path, |out| file.finish_to(out).map_err(io::Error::other))
}

/// The only kind of text that ITK reads; HDF5 converts no UTF-8 to it.
fn ascii_of_any_length() -> Datatype {
    Datatype::VariableLength {
        is_string: true,
        padding: Some(StringPadding::NullTerminate),
        charset: Some(CharacterSet::Ascii),
        base_type: Box::new(make_u8_type()),
    }
}
