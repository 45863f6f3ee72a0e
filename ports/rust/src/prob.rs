//! From uniforms to outcomes, and accept or replace (`tinyllm.prob`). Every sum runs left to right.

use crate::Id;

/// The first id whose running sum exceeds `u`; the last id with p > 0 where rounding leaves the sum at or below `u`.
pub fn sample_categorical(p: &[f64], u: f64) -> Id {
    let mut running = 0.0;
    let mut last = None;
    for (id, &share) in p.iter().enumerate().filter(|(_, &share)| share > 0.0) {
        running += share;
        last = Some(id);
        if u < running {
            break;
        }
    }
    last.expect("a distribution has an id with p > 0")
}

/// How often a draw from q is kept: the sum of min(p, q).
pub fn acceptance_probability(p: &[f64], q: &[f64]) -> f64 {
    p.iter().zip(q).fold(0.0, |sum, (&p, &q)| sum + p.min(q))
}

/// max(0, p - q) / Z: what p still needs after its overlap with q. Where Z is 0, p itself.
pub fn residual(p: &[f64], q: &[f64]) -> Vec<f64> {
    let excess: Vec<f64> = p.iter().zip(q).map(|(p, q)| (p - q).max(0.0)).collect();
    let total = excess.iter().fold(0.0, |sum, e| sum + e);
    if total > 0.0 {
        excess.iter().map(|e| e / total).collect()
    } else {
        p.to_vec()
    }
}

/// Turns the draft `x`, drawn from q, into a token drawn from p: `(x, true)` when kept, else `(replacement, false)`.
pub fn speculative_step(p: &[f64], q: &[f64], x: Id, u_accept: f64, u_resample: f64) -> (Id, bool) {
    assert!(q[x] > 0.0, "the draft {x} cannot have been drawn from q");
    if u_accept < p[x] / q[x] {
        (x, true)
    } else {
        (sample_categorical(&residual(p, q), u_resample), false)
    }
}
