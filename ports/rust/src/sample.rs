//! From logits to a token (`tinyllm.infer.sample`): penalties, temperature, top-k, top-p, min-p, one uniform.

use crate::prob::sample_categorical;
use crate::rng::Pcg32;
use crate::Id;

/// How a request wants its tokens chosen; the default samples from the model's own distribution.
#[derive(Clone, Debug)]
pub struct Params {
    pub temperature: f64,
    pub top_k: usize,
    pub top_p: f64,
    pub min_p: f64,
    pub repetition_penalty: f64,
    pub presence_penalty: f64,
    pub frequency_penalty: f64,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
        }
    }
}

/// The ids before the next token: the penalties tell them apart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past<'a> {
    pub prompt: &'a [Id],
    pub history: &'a [Id],
}

/// Logits after one position, with the penalties of a request applied.
pub struct Penalised(Vec<f64>);

impl Penalised {
    /// Repetition once an id of prompt and history; frequency and presence for the ids of the history.
    pub fn new(logits: &[f64], p: &Params, past: Past) -> Self {
        let mut out = logits.to_vec();
        let mut seen = vec![false; out.len()];
        let mut count = vec![0u32; out.len()];
        for &id in past.prompt.iter().chain(past.history) {
            seen[id] = true;
        }
        for &id in past.history {
            count[id] += 1;
        }
        for (id, l) in out.iter_mut().enumerate() {
            if seen[id] && *l > 0.0 {
                *l /= p.repetition_penalty;
            } else if seen[id] {
                *l *= p.repetition_penalty;
            }
            if count[id] > 0 {
                *l = *l - p.frequency_penalty * f64::from(count[id]) - p.presence_penalty;
            }
        }
        assert!(largest(&out).is_finite(), "logits may be -inf but not all, and never NaN or +inf");
        Penalised(out)
    }

    /// The reported log-probability of `id`: log-softmax before temperature and filters.
    pub fn logprob(&self, id: Id) -> f64 {
        let max = largest(&self.0);
        let z = self.0.iter().fold(0.0, |sum, l| sum + (l - max).exp());
        (self.0[id] - max) - z.ln()
    }

    /// The distribution that the next token is drawn from; one-hot at temperature 0.
    pub fn distribution(&self, p: &Params) -> Vec<f64> {
        if p.temperature == 0.0 {
            return one_hot(self.greedy(), self.0.len());
        }
        let mut logits: Vec<f64> = self.0.iter().map(|l| l / p.temperature).collect();
        if 0 < p.top_k && p.top_k < logits.len() {
            let order = descending(&logits);
            drop_ids(&mut logits, order.get(p.top_k..).unwrap_or(&[]));
        }
        if p.top_p < 1.0 {
            let (order, q) = (descending(&logits), softmax(&logits));
            let mut running = 0.0;
            let reached = order.iter().position(|&id| {
                running += q[id];
                running >= p.top_p
            });
            drop_ids(&mut logits, reached.map_or(&[], |last| &order[last + 1..]));
        }
        if p.min_p > 0.0 {
            let q = softmax(&logits);
            let least = p.min_p * largest(&q);
            let unlikely: Vec<Id> = (0..q.len()).filter(|&id| q[id] < least).collect();
            drop_ids(&mut logits, &unlikely);
        }
        softmax(&logits)
    }

    /// The next token: the largest logit at temperature 0, without a draw; else a draw with one uniform.
    pub fn choose(&self, p: &Params, rng: &mut Pcg32) -> Id {
        if p.temperature == 0.0 {
            self.greedy()
        } else {
            sample_categorical(&self.distribution(p), rng.uniform())
        }
    }

    fn greedy(&self) -> Id {
        argmax(&self.0)
    }
}

/// The id of the largest value; ties go to the lowest id.
pub fn argmax(xs: &[f64]) -> Id {
    let max = largest(xs);
    xs.iter().position(|&x| x == max).expect("a value that is not NaN")
}

/// All of the probability at one id.
pub fn one_hot(id: Id, size: usize) -> Vec<f64> {
    let mut out = vec![0.0; size];
    out[id] = 1.0;
    out
}

/// exp(l - max) over its sum, left to right. A logit of -inf adds exactly 0.
fn softmax(logits: &[f64]) -> Vec<f64> {
    let max = largest(logits);
    let mut out: Vec<f64> = logits.iter().map(|l| (l - max).exp()).collect();
    let total = out.iter().fold(0.0, |sum, e| sum + e);
    out.iter_mut().for_each(|e| *e /= total);
    out
}

/// The ids above -inf by logit, largest first; equal ones by id, because the sort is stable.
fn descending(logits: &[f64]) -> Vec<Id> {
    let mut ids: Vec<Id> = (0..logits.len()).filter(|&id| logits[id] > f64::NEG_INFINITY).collect();
    ids.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).expect("no NaN"));
    ids
}

fn drop_ids(logits: &mut [f64], ids: &[Id]) {
    ids.iter().for_each(|&id| logits[id] = f64::NEG_INFINITY);
}

fn largest(xs: &[f64]) -> f64 {
    xs.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
