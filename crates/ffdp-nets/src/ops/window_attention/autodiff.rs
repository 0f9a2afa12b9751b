//! The chain rule of attention.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::WindowAttentionOps;
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct WindowAttentionVjp;

impl<B: WindowAttentionOps> Vjp<B, 2> for WindowAttentionVjp {
    /// qkv, bias, regions, logs; nothing where no gradient is wanted.
    type Saved = Option<[FloatTensor<B>; 4]>;

    fn backward(
        saved: Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let [qkv, bias, regions, logs] = saved.expect("something wants a gradient");
        let (to_qkv, to_bias) = B::attend_windows_backward(qkv, bias, regions, logs, grad);
        [Some(to_qkv), Some(to_bias)]
    }
}

impl<B: WindowAttentionOps, C: CheckpointStrategy> WindowAttentionOps for Autodiff<B, C> {
    fn attend_windows(
        qkv: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        regions: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let regions = regions.into_primitive();
        record::<B, C, _, 2>(WindowAttentionVjp, [qkv, bias], |[qkv, bias], needs| {
            if needs == [false, false] {
                return (B::attend_windows(qkv, bias, regions), None);
            }
            let (y, logs) = B::attend_windows_with_logs(qkv.clone(), bias.clone(), regions.clone());
            (y, Some([qkv, bias, regions, logs]))
        })
    }

    refuse_second_order! { "window_attention";
        fn attend_windows_with_logs(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>,
        ) -> (FloatTensor<Self>, FloatTensor<Self>);
        fn attend_windows_backward(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>,
            FloatTensor<Self>,
        ) -> (FloatTensor<Self>, FloatTensor<Self>);
    }
}
