//! The names of TransMorph's tensors in PyTorch.

/// The PyTorch name of a parameter of our network, by its path; for example
/// `encoder.layers.0.blocks.1.norm1.gamma` is `transformer.layers.0.blocks.1.norm1.weight`.
pub fn pytorch_name(path: &str) -> String {
    let parts: Vec<&str> = path.split('.').collect();
    let named = match parts[..] {
        ["encoder", "norms", stage, ref rest @ ..] => {
            [vec!["transformer".to_string(), format!("norm{stage}")], owned(rest)].concat()
        }
        ["encoder", ref rest @ ..] => [vec!["transformer".to_string()], owned(rest)].concat(),
        ["decoder", skip, "conv", ref rest @ ..] => [owned(&[skip, "0"]), owned(rest)].concat(),
        ["decoder", up, conv, "conv", ref rest @ ..] => {
            [owned(&[up, conv, "0"]), owned(rest)].concat()
        }
        ["head", "conv", ref rest @ ..] => [owned(&["reg_head", "0"]), owned(rest)].concat(),
        ref other => owned(other),
    };
    named.join(".").replace(".gamma", ".weight").replace(".beta", ".bias")
}

/// Tensors of a checkpoint that hold no weights.
pub fn is_ignored(name: &str) -> bool {
    name.ends_with("relative_position_index") || name.starts_with("spatial_trans.")
}

fn owned(parts: &[&str]) -> Vec<String> {
    parts.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_published_model() {
        for (ours, theirs) in [
            ("encoder.patch_embed.proj.weight", "transformer.patch_embed.proj.weight"),
            ("encoder.norms.2.beta", "transformer.norm2.bias"),
            (
                "encoder.layers.1.blocks.0.attn.relative_position_bias_table",
                "transformer.layers.1.blocks.0.attn.relative_position_bias_table",
            ),
            (
                "encoder.layers.0.downsample.norm.gamma",
                "transformer.layers.0.downsample.norm.weight",
            ),
            ("decoder.up2.conv1.conv.weight", "up2.conv1.0.weight"),
            ("decoder.c2.conv.weight", "c2.0.weight"),
            ("head.conv.bias", "reg_head.0.bias"),
        ] {
            assert_eq!(pytorch_name(ours), theirs);
        }
    }
}
