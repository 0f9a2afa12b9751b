//! Affine fields on the CPU: rayon over rows, in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{AffineFieldOps, Maps};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

fn mapped<T: Real>(field: &FlexTensor, maps: &Maps) -> FlexTensor {
    let [batch, _, d, h, w] = std::array::from_fn(|axis| field.layout().shape()[axis]);
    let (len, values) = (d * h * w, elements::<T>(field));
    let mut output = vec![T::default(); values.len()];
    for n in 0..batch {
        let u = [0, 1, 2].map(|c| &values[(3 * n + c) * len..][..len]);
        let (x, rest) = output[3 * n * len..][..3 * len].split_at_mut(len);
        let (y, z) = rest.split_at_mut(len);
        let rows = (x.par_chunks_mut(w), y.par_chunks_mut(w), z.par_chunks_mut(w));
        rows.into_par_iter().enumerate().for_each(|(row, (x, y, z))| {
            let [j, k] = [row % h, row / h].map(|index| index as f64);
            let u = u.map(|u| &u[row * w..][..w]);
            for (component, row) in [x, y, z].into_iter().zip(0..3) {
                let ([a, b, c, t], [m0, m1, m2]) = (maps.positions[row], maps.vectors[row]);
                let start = b * j + c * k + t;
                let (u0, u1, u2) = (u[0].iter(), u[1].iter(), u[2].iter());
                for (i, (y, ((u0, u1), u2))) in
                    component.iter_mut().zip(u0.zip(u1).zip(u2)).enumerate()
                {
                    let vector = m0 * u0.wide() + m1 * u1.wide() + m2 * u2.wide();
                    *y = T::of(start + a * i as f64 + vector);
                }
            }
        });
    }
    tensor(output, [batch, 3, d, h, w])
}

impl AffineFieldOps for Flex {
    fn affine_field_3d(field: FloatTensor<Self>, maps: Maps) -> FloatTensor<Self> {
        let field = field.to_contiguous();
        by_dtype!("affine_field", field.dtype(), mapped(&field, &maps))
    }
}
