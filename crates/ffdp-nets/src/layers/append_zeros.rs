use burn::tensor::Tensor;

/// Appends zeros at the far end of each axis.
///
/// Why not `Tensor::pad`: on a device that tracks gradients Burn 0.22 fills the padded tensor on the
/// host and uploads it, in every pass.
///
/// Shapes: x any; result longer by `missing` along each axis.
pub fn append_zeros<const D: usize>(x: Tensor<D>, missing: [usize; D]) -> Tensor<D> {
    (0..D).filter(|&axis| missing[axis] > 0).fold(x, |x, axis| {
        let mut shape = x.dims();
        shape[axis] = missing[axis];
        let zeros = Tensor::zeros(shape, (&x.device(), x.dtype()));
        Tensor::cat(vec![x, zeros], axis)
    })
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use burn::tensor::ops::PadMode;

    use super::*;

    #[test]
    fn it_pads_as_burn_does() {
        let device = Device::flex();
        let x = Tensor::<3>::random([2, 3, 4], burn::tensor::Distribution::Default, &device);
        let expected = x.clone().pad([(0, 1), (0, 0), (0, 3)], PadMode::Constant(0.0));
        append_zeros(x, [1, 0, 3]).into_data().assert_eq(&expected.into_data(), true);
    }
}
