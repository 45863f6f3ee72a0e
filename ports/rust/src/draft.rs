//! Drafts: cheap guesses at how a context goes on (the drafts of `tinyllm.infer.spec`).

use std::collections::BTreeMap;

use crate::prob::sample_categorical;
use crate::rng::Pcg32;
use crate::sample::{argmax, Params, Past, Penalised};
use crate::Id;

/// Ids, and the distributions they were drawn from: `None` for a deterministic draft.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proposal {
    pub ids: Vec<Id>,
    pub probs: Option<Vec<Vec<f64>>>,
}

/// Anything that guesses how a context goes on.
pub trait Draft {
    /// Up to `k` ids after `ctx`. Without a generator it gives its greedy guess, and no distributions.
    fn propose(&mut self, ctx: &[Id], k: usize, rng: Option<&mut Pcg32>) -> Proposal;
}

/// Copies what followed the most recent earlier occurrence of the last few ids, longest n-gram first.
#[derive(Clone, Debug)]
pub struct PromptLookup {
    pub max_ngram: usize,
    pub min_ngram: usize,
}

impl Draft for PromptLookup {
    fn propose(&mut self, ctx: &[Id], k: usize, _: Option<&mut Pcg32>) -> Proposal {
        let longest = self.max_ngram.min(ctx.len());
        let found = (self.min_ngram..=longest).rev().find_map(|n| {
            let suffix = &ctx[ctx.len() - n..];
            let start = (0..ctx.len() - n).rev().find(|&i| &ctx[i..i + n] == suffix)?;
            Some(&ctx[start + n..])
        });
        let ids = found.map_or(Vec::new(), |rest| rest[..k.min(rest.len())].to_vec());
        Proposal { ids, probs: None }
    }
}

/// Follows the most frequent continuation of the last ids in the context itself, drafted ids included.
#[derive(Clone, Debug)]
pub struct ContextNgram {
    pub max_ngram: usize,
}

impl ContextNgram {
    /// The most frequent follower of the longest suffix that has one; ties go to the lowest id.
    fn next(&self, ids: &[Id]) -> Option<Id> {
        let longest = (self.max_ngram - 1).min(ids.len());
        (1..=longest).rev().find_map(|m| {
            let suffix = &ids[ids.len() - m..];
            let mut count: BTreeMap<Id, usize> = BTreeMap::new();
            for window in ids.windows(m + 1).filter(|window| &window[..m] == suffix) {
                *count.entry(window[m]).or_default() += 1;
            }
            // From the highest id down, so that of equals the lowest comes last, which is the one `max_by_key` gives.
            count.into_iter().rev().max_by_key(|&(_, times)| times).map(|(id, _)| id)
        })
    }
}

impl Draft for ContextNgram {
    fn propose(&mut self, ctx: &[Id], k: usize, _: Option<&mut Pcg32>) -> Proposal {
        let mut ids = ctx.to_vec();
        while ids.len() < ctx.len() + k {
            let Some(next) = self.next(&ids) else { break };
            ids.push(next);
        }
        Proposal { ids: ids.split_off(ctx.len()), probs: None }
    }
}

/// Drafts from a model of counts, here any function from a context to log-probabilities.
pub struct Ngram<F>(pub F);

impl<F: Fn(&[Id]) -> Vec<f64>> Draft for Ngram<F> {
    fn propose(&mut self, ctx: &[Id], k: usize, mut rng: Option<&mut Pcg32>) -> Proposal {
        let mut ids = ctx.to_vec();
        let mut probs = Vec::new();
        for _ in 0..k {
            let logits = (self.0)(&ids);
            ids.push(match rng.as_deref_mut() {
                None => argmax(&logits),
                Some(rng) => {
                    let plain = Params::default();
                    let q = Penalised::new(&logits, &plain, Past::default()).distribution(&plain);
                    let id = sample_categorical(&q, rng.uniform());
                    probs.push(q);
                    id
                }
            });
        }
        let probs = (!probs.is_empty()).then_some(probs);
        Proposal { ids: ids.split_off(ctx.len()), probs }
    }
}
