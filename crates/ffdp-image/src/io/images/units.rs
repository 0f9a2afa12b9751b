//! Units of length by their names in headers.

/// Millimetres in a unit: the names of UDUNITS-2 and those that laboratories write, singular or plural.
pub fn unit_in_mm(unit: &str) -> Option<f64> {
    let name = unit.trim().to_lowercase();
    let singular = name.strip_suffix('s').filter(|name| name.len() > 3).unwrap_or(&name);
    Some(match singular {
        "millimeter" | "millimetre" | "mm" => 1.0,
        "micrometer" | "micrometre" | "micron" | "um" | "\u{b5}m" | "\u{3bc}m" => 1e-3,
        "nanometer" | "nanometre" | "nm" => 1e-6,
        "angstrom" => 1e-7,
        "picometer" | "picometre" | "pm" => 1e-9,
        "centimeter" | "centimetre" | "cm" => 10.0,
        "decimeter" | "decimetre" => 100.0,
        "meter" | "metre" | "m" => 1e3,
        "kilometer" | "kilometre" => 1e6,
        "inch" => 25.4,
        "foot" => 304.8,
        "yard" => 914.4,
        _ => return None,
    })
}
