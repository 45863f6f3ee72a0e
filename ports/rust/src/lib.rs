//! Speculative decoding in Rust: the generator, the sampler, three drafts, the verifier and the loop.
//!
//! A port of the Python package `tinyllm`, held to it by the shared vectors in `tests/vectors`: on the same logits it
//! draws the same uniforms and emits the same ids. Each module names the Python module it follows. A caller's mistake
//! (a row too few, an id outside the vocabulary) is a panic.

pub mod answers;
pub mod draft;
pub mod json;
pub mod prob;
pub mod rng;
pub mod sample;
pub mod spec;

/// A token: an index into the vocabulary.
pub type Id = usize;
