//! Filling a module with tensors by name.

use std::collections::BTreeSet;

use burn::module::{ModuleMapper, Param};
use burn::tensor::{Tensor, TensorData};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::keys::{is_ignored, pytorch_name};

/// Replaces every parameter by the tensor of its name.
pub struct Loader<'a> {
    tensors: &'a SafeTensors<'a>,
    path: Vec<String>,
    used: BTreeSet<String>,
    problem: Option<(String, String)>,
}

impl<'a> Loader<'a> {
    pub fn new(tensors: &'a SafeTensors<'a>) -> Self {
        Self { tensors, path: Vec::new(), used: BTreeSet::new(), problem: None }
    }

    /// The first rule that was broken, and by what.
    pub fn finish(self) -> Result<(), (String, String)> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let known = |name: &&str| self.used.contains(*name) || is_ignored(name);
        match self.tensors.names().into_iter().find(|name| !known(name)) {
            None => Ok(()),
            Some(name) => {
                Err(("the file must hold nothing else than TransMorph".into(), name.to_string()))
            }
        }
    }

    /// The values of a tensor for a parameter of this shape.
    fn values(&mut self, name: &str, ours: &[usize]) -> Result<Vec<f32>, (String, String)> {
        let missing =
            |_| ("the file must hold every tensor of the network".into(), name.to_string());
        let tensor = self.tensors.tensor(name).map_err(missing)?;
        // A linear layer holds the transposed matrix there.
        let transposed = ours.len() == 2 && !name.ends_with("relative_position_bias_table");
        let expected: Vec<usize> =
            if transposed { ours.iter().rev().copied().collect() } else { ours.to_vec() };
        if tensor.shape() != expected {
            let what = format!("{name} must have the shape {expected:?}");
            return Err((what, format!("{:?}", tensor.shape())));
        }
        let mut values = floats(&tensor).ok_or_else(|| {
            (format!("{name} must hold floating-point numbers"), format!("{:?}", tensor.dtype()))
        })?;
        if transposed {
            let [rows, columns] = [ours[0], ours[1]];
            let at = |i: usize| values[i % columns * rows + i / columns];
            values = (0..rows * columns).map(at).collect();
        }
        if name.starts_with("reg_head.0.") {
            // Components are (D, H, W) there and (x, y, z) here.
            let part = values.len() / 3;
            values = values.chunks(part).rev().flatten().copied().collect();
        }
        Ok(values)
    }
}

impl ModuleMapper for Loader<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let name = pytorch_name(&self.path.join("."));
        let shape = tensor.dims();
        let tensor = match self.values(&name, &shape) {
            Ok(values) => Tensor::from_data(TensorData::new(values, shape), &tensor.device()),
            Err(problem) => {
                self.problem.get_or_insert(problem);
                tensor
            }
        };
        self.used.insert(name);
        Param::from_mapped_value(id, tensor, mapper)
    }
}

/// The numbers of a tensor; `None` where they are of another kind.
fn floats(tensor: &TensorView) -> Option<Vec<f32>> {
    let bytes = tensor.data();
    let values = match tensor.dtype() {
        Dtype::F32 => {
            let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            bytes.chunks_exact(4).map(number).collect()
        }
        Dtype::F64 => {
            let number = |b: &[u8]| f64::from_le_bytes(b.try_into().expect("eight bytes")) as f32;
            bytes.chunks_exact(8).map(number).collect()
        }
        Dtype::BF16 => {
            let number =
                |b: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
            bytes.chunks_exact(2).map(number).collect()
        }
        _ => return None,
    };
    Some(values)
}
