//! From numbers to colours.

use ffdp_train::pictures::Rgb;

/// Of curves, distinguishable by colour-blind readers (Okabe and Ito).
pub const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#b5a800"];

/// Of a voxel that folds.
pub const FOLD: Rgb = [255, 0, 200];
/// Of the lines of the deformed grid.
pub const GRID: Rgb = [255, 210, 40];

/// Of control points.
pub const CONTROL: Rgb = [255, 80, 40];

/// Of borders and landmarks of the fixed image, of those of the moving image, and of borders where both are.
pub const FIXED_MARK: Rgb = [0, 190, 255];
pub const MOVING_MARK: Rgb = [255, 140, 0];
pub const BOTH: Rgb = [255; 3];

/// Black to white.
pub fn gray(value: f64) -> Rgb {
    [byte(value); 3]
}

/// Black over red and yellow to white.
pub fn heat(value: f64) -> Rgb {
    [0.0, 1.0, 2.0].map(|from| byte(3.0 * value - from))
}

/// Blue at -1, white at 0, red at 1; equally dark at both ends.
pub fn diverging(value: f64) -> Rgb {
    const STOPS: [[f64; 3]; 5] = [
        [0.13, 0.25, 0.55],
        [0.45, 0.65, 0.86],
        [0.97, 0.97, 0.97],
        [0.94, 0.56, 0.42],
        [0.56, 0.09, 0.13],
    ];
    let at = (value.clamp(-1.0, 1.0) + 1.0) / 2.0 * (STOPS.len() - 1) as f64;
    let low = (at as usize).min(STOPS.len() - 2);
    let t = at - low as f64;
    std::array::from_fn(|c| byte((1.0 - t) * STOPS[low][c] + t * STOPS[low + 1][c]))
}

fn byte(value: f64) -> u8 {
    (255.0 * value.clamp(0.0, 1.0)).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_white_and_the_ends_differ() {
        assert_eq!(diverging(0.0), [247; 3]);
        let ([r, _, b], [red, _, blue]) = (diverging(-1.0), diverging(1.0));
        assert!(b > r && red > blue);
        assert_eq!((diverging(-7.0), diverging(7.0)), (diverging(-1.0), diverging(1.0)));
    }
}
