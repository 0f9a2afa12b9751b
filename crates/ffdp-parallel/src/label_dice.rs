//! Overlap of labels seen through a displacement in parts.
//!
//! ```text
//! I_k, A_k, B_k = sum over the parts of those of their voxels        dice_k = 2 I_k / (A_k + B_k + eps)
//! ```
//! The sums of labels (`ops/label_dice`) are additive. A part that starts at plane `o` looks into the planes of the
//! moving labels that its displacement reaches, from plane `s` on: with `u + e (o - s)`, a translation along the axis
//! of the cuts. What lies in no plane that it looks into is outside the whole, too, and counts as no label.

use std::ops::Range;

use burn::Tensor;
use burn::tensor::{Device, Int, TensorData};

use super::collective::reduce;
use super::exchange::Reduction;
use super::layout::Layout;
use super::ring::{DisplacementBounds, IndexMap, MappedPlanes};
use super::sharded::Sharded;
use super::transfer::labels_to_devices;
use ffdp_burn::losses;
use ffdp_burn::ops::LabelDiceOptions;
use ffdp_burn::ops::label_dice::{dice_of_sums, label_sums};

/// [`label_dice_loss`](ffdp_burn::losses::label_dice_loss) of a displacement in parts, `[1]` on the device of the first:
/// the serial one, whatever the cuts. The labels are whole, on any device, and every part is sent what it looks at.
/// `bounds` are those of the displacement: one for all parts, or one for each. Differentiable in the displacement.
///
/// # Shapes
/// moving `[N, 1, Di, Hi, Wi]`, fixed `[N, 1, D, H, W]`, displacement `[N, 3, D, H, W]` in voxels; result `[1]`.
///
/// # Panics
/// As [`label_dice`](ffdp_burn::ops::label_dice()), or if the numbers of parts and bounds do not fit each other.
pub fn label_dice_loss(
    [moving, fixed]: [Tensor<5, Int>; 2],
    displacement: &Sharded,
    bounds: &[DisplacementBounds],
    ids: &[i32],
) -> Tensor<1> {
    let (layout, parts) = (displacement.layout(), displacement.shards());
    assert!(
        bounds.len() == 1 || bounds.len() == parts.len(),
        "label_dice_loss: {} bounds for {} parts; give one, or one for each",
        bounds.len(),
        parts.len()
    );
    let (found, expected) = (fixed.dims(), displacement.dims());
    assert!(
        found[2..] == expected[2..],
        "label_dice_loss: fixed labels {found:?} for a displacement {expected:?}"
    );
    if let [displacement] = parts {
        return losses::label_dice_loss(moving, fixed, displacement.clone(), ids);
    }
    let [_, _, d, h, w] = moving.dims();
    let image = Layout::balanced([d, h, w], layout.axis(), 1).expect("one part is always possible");
    let map = IndexMap::identity();
    let reached: Vec<Range<usize>> = layout
        .all_planes()
        .enumerate()
        .map(|(k, planes)| {
            let bounds = &bounds[k.min(bounds.len() - 1)];
            MappedPlanes { fixed: layout, planes: &planes, map: &map, bounds }.reachable(&image)
        })
        .collect();
    let part = |labels: &Tensor<5, Int>, planes: &Range<usize>, device: &Device| {
        (labels.clone().narrow(layout.axis().dim(), planes.start, planes.len()), device.clone())
    };
    let asked = layout.all_planes().zip(&reached).zip(parts).flat_map(|((own, reached), u)| {
        let device = u.device();
        [part(&moving, reached, &device), part(&fixed, &own, &device)]
    });
    let mut labels = labels_to_devices(asked.collect()).into_iter();
    let LabelDiceOptions { denominator, epsilon } = LabelDiceOptions::default();
    let sums = layout.all_planes().zip(&reached).zip(parts).map(|((own, reached), u)| {
        let mut next = || labels.next().expect("two for each part");
        let (moving, fixed) = (next(), next());
        let mut from = [0.0; 3];
        from[layout.axis().component()] = own.start as f64 - reached.start as f64;
        let from = TensorData::new(from.to_vec(), [1, 3, 1, 1, 1]).convert_dtype(u.dtype());
        let u = u.clone() + Tensor::from_data(from, (&u.device(), u.dtype()));
        label_sums(moving, fixed, u, ids, denominator)
    });
    dice_of_sums(reduce(sums, Reduction::Sum), epsilon).mean().neg().add_scalar(1.0)
}
