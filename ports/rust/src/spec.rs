//! Verification and the loop around it (`tinyllm.infer.spec` and `tinyllm.infer.generate`).

use crate::draft::{Draft, Proposal};
use crate::prob::speculative_step;
use crate::rng::Pcg32;
use crate::sample::{one_hot, Params, Past, Penalised};
use crate::Id;

/// Keeps the draft ids that the target agrees to and adds one token of its own: `(emitted, kept)`.
///
/// `rows` are the target's logits after the context and after each draft id: one more than there are draft ids. Each
/// position sees the drafts kept before it. Sampling draws two uniforms a position visited and one for the bonus.
pub fn verify_draft(rows: &[Vec<f64>], draft: &Proposal, p: &Params, past: Past, rng: &mut Pcg32) -> (Vec<Id>, usize) {
    let m = draft.ids.len();
    assert_eq!(rows.len(), m + 1, "{m} draft ids need {} rows of logits", m + 1);
    let mut history = past.history.to_vec();
    let mut kept = 0;
    while kept < m {
        let (row, x) = (&rows[kept], draft.ids[kept]);
        let target = Penalised::new(row, p, Past { history: &history, ..past });
        let (token, accepted) = if p.temperature == 0.0 {
            let own = target.choose(p, rng);
            (own, own == x)
        } else {
            let (u_accept, u_resample) = (rng.uniform(), rng.uniform());
            let distribution = target.distribution(p);
            match &draft.probs {
                Some(q) => speculative_step(&distribution, &q[kept], x, u_accept, u_resample),
                None => speculative_step(&distribution, &one_hot(x, row.len()), x, u_accept, u_resample),
            }
        };
        history.push(token);
        if !accepted {
            break;
        }
        kept += 1;
    }
    if kept == m {
        let bonus = Penalised::new(&rows[m], p, Past { history: &history, ..past });
        history.push(bonus.choose(p, rng));
    }
    (history.split_off(past.history.len()), kept)
}

/// A target model with a cache of the positions that it was fed.
pub trait Target {
    /// The most positions it takes.
    fn max_len(&self) -> usize;
    /// How many positions the cache holds.
    fn cached(&self) -> usize;
    /// Feeds `ids` after what the cache holds; the logits after each of them.
    fn forward(&mut self, ids: &[Id]) -> Vec<Vec<f64>>;
    /// Forgets everything from position `n` on.
    fn truncate(&mut self, n: usize);
}

/// What is asked for: a prompt and when to stop.
#[derive(Clone, Debug)]
pub struct Request {
    pub prompt: Vec<Id>,
    pub params: Params,
    pub seed: u64,
    pub max_tokens: usize,
    pub eos_ids: Vec<Id>,
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    Length,
    Stop,
}

/// One target pass: what was drafted, how much was kept, and the target's own token.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    pub draft: Vec<Id>,
    pub accepted: usize,
    pub token: Id,
    pub cached: usize,
}

/// What a request produced.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    pub ids: Vec<Id>,
    pub logprobs: Vec<f64>,
    pub rounds: Vec<Round>,
    pub finish: Finish,
}

/// Continues the prompt with up to `k` draft ids checked in each pass; without a draft, one token a pass.
pub fn generate(target: &mut dyn Target, mut draft: Option<&mut dyn Draft>, request: &Request, k: usize) -> Generation {
    let (prompt, p) = (&request.prompt, &request.params);
    assert!((1..=target.max_len()).contains(&prompt.len()), "a prompt has 1 to max_len ids");
    let budget = request.max_tokens.min(target.max_len() - prompt.len());
    let mut rng = Pcg32::for_request(request.seed);
    let mut out = Generation { ids: vec![], logprobs: vec![], rounds: vec![], finish: Finish::Length };
    let mut context = prompt.clone();
    let mut pending = prompt.clone(); // given or emitted, but not in the cache yet
    while out.ids.len() < budget && out.finish == Finish::Length {
        // One place of the budget stays free for the target's own token.
        let m = k.min(budget - out.ids.len() - 1);
        let proposal = match &mut draft {
            Some(draft) if m > 0 => draft.propose(&context, m, (p.temperature > 0.0).then_some(&mut rng)),
            _ => Proposal::default(),
        };
        let committed = target.cached();
        let fed = [pending.as_slice(), &proposal.ids].concat();
        let rows = target.forward(&fed).split_off(pending.len() - 1);
        let past = Past { prompt, history: &out.ids };
        let (emitted, n) = verify_draft(&rows, &proposal, p, past, &mut rng);
        // Forget the rejected drafts. The last token was never fed: it is pending.
        target.truncate(committed + pending.len() + n);
        let token = emitted[n];
        pending = vec![token];
        for (row, &id) in rows.iter().zip(&emitted) {
            if request.eos_ids.contains(&id) {
                out.finish = Finish::Stop;
                break;
            }
            let past = Past { prompt, history: &out.ids };
            out.logprobs.push(Penalised::new(row, p, past).logprob(id));
            out.ids.push(id);
            context.push(id);
        }
        out.rounds.push(Round { draft: proposal.ids, accepted: n, token, cached: target.cached() });
    }
    out
}
