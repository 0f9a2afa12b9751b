//! A rectangle of pixels, and how it becomes part of a page.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use png::{BitDepth, ColorType, Compression, Encoder};

use super::colours::Rgb;
use crate::failure::{Failure, Result};

/// Pixels from the top left.
pub struct Canvas {
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<Rgb>,
}

impl Canvas {
    /// All of one colour.
    pub fn new(width: usize, height: usize, colour: Rgb) -> Self {
        Self { width, height, pixels: vec![colour; width * height] }
    }

    /// The picture as the address of an image: a PNG inside.
    pub fn data_url(&self) -> Result<String> {
        Ok(format!("data:image/png;base64,{}", STANDARD.encode(self.png()?)))
    }

    /// Gray pictures take a third of the space.
    fn png(&self) -> Result<Vec<u8>> {
        let gray = self.pixels.iter().all(|[r, g, b]| r == g && g == b);
        let (colour, bytes): (_, Vec<u8>) = match gray {
            true => (ColorType::Grayscale, self.pixels.iter().map(|pixel| pixel[0]).collect()),
            false => (ColorType::Rgb, self.pixels.as_flattened().to_vec()),
        };
        let mut png = Vec::new();
        let mut encoder = Encoder::new(&mut png, self.width as u32, self.height as u32);
        encoder.set_color(colour);
        encoder.set_depth(BitDepth::Eight);
        encoder.set_compression(Compression::Fast);
        encoder.write_header().and_then(|mut writer| writer.write_image_data(&bytes)).map_err(
            |reason| {
                let size = (self.width, self.height);
                Failure::defect(format!("a picture of {size:?} pixels: {reason}"))
            },
        )?;
        Ok(png)
    }
}
