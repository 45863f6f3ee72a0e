//! At temperature 0 a draft changes how many passes a request takes, and nothing else.

use tinyllm_port::draft::{ContextNgram, Draft, PromptLookup, Proposal};
use tinyllm_port::rng::Pcg32;
use tinyllm_port::sample::Params;
use tinyllm_port::spec::{generate, Request, Target};
use tinyllm_port::Id;

/// A target that repeats itself now and then: its logits are a hash of the last three ids that its cache holds.
struct Fake {
    cache: Vec<Id>,
    passes: usize,
}

const VOCABULARY: usize = 7;

impl Target for Fake {
    fn max_len(&self) -> usize {
        96
    }

    fn cached(&self) -> usize {
        self.cache.len()
    }

    fn forward(&mut self, ids: &[Id]) -> Vec<Vec<f64>> {
        self.passes += 1;
        ids.iter()
            .map(|&id| {
                self.cache.push(id);
                let recent = self.cache.iter().rev().take(3).fold(0, |hash, &id| 8 * hash + id as u64);
                let mut rng = Pcg32::new(recent, 1);
                (0..VOCABULARY).map(|_| rng.below(64) as f64 / 8.0).collect()
            })
            .collect()
    }

    fn truncate(&mut self, n: usize) {
        self.cache.truncate(n);
    }
}

/// Guesses that are never worth anything.
struct Stubborn;

impl Draft for Stubborn {
    fn propose(&mut self, _: &[Id], k: usize, _: Option<&mut Pcg32>) -> Proposal {
        Proposal { ids: vec![0; k], probs: None }
    }
}

#[test]
fn greedy_speculation_equals_greedy_decoding() {
    let drafts: [fn() -> Box<dyn Draft>; 3] = [
        || Box::new(PromptLookup { max_ngram: 3, min_ngram: 1 }),
        || Box::new(ContextNgram { max_ngram: 3 }),
        || Box::new(Stubborn),
    ];
    let mut saved = 0;
    for prompt in [vec![1, 2, 3, 1, 2], vec![0], vec![6, 5, 4, 3, 6, 5]] {
        for (eos_ids, frequency_penalty) in [(vec![], 0.0), (vec![3], 0.0), (vec![], 0.25)] {
            let params = Params { temperature: 0.0, frequency_penalty, ..Params::default() };
            let request = Request { prompt: prompt.clone(), params, seed: 0, max_tokens: 60, eos_ids };
            let mut alone = Fake { cache: vec![], passes: 0 };
            let plain = generate(&mut alone, None, &request, 0);
            for (draft, k) in drafts.iter().flat_map(|draft| (0..7).map(move |k| (draft, k))) {
                let mut target = Fake { cache: vec![], passes: 0 };
                let fast = generate(&mut target, Some(draft().as_mut()), &request, k);
                assert_eq!(
                    (&fast.ids, &fast.logprobs, fast.finish),
                    (&plain.ids, &plain.logprobs, plain.finish),
                    "k {k}, {request:?}"
                );
                assert!(target.passes <= alone.passes);
                saved += alone.passes - target.passes;
            }
        }
    }
    assert!(saved > 0, "some draft was worth something");
}

#[test]
#[should_panic(expected = "2 draft ids need 3 rows")]
fn a_row_too_few_is_refused() {
    let draft = Proposal { ids: vec![0, 1], probs: None };
    let rows = vec![vec![0.0, 1.0]; 2];
    tinyllm_port::spec::verify_draft(&rows, &draft, &Params::default(), Default::default(), &mut Pcg32::new(0, 54));
}
