//! The answers to the cases of the shared vectors, one function a section (`tinyllm.infer.vectors`).

use crate::draft::{ContextNgram, Draft, Ngram, PromptLookup, Proposal};
use crate::json::{object, Json};
use crate::prob::{acceptance_probability, residual, sample_categorical, speculative_step};
use crate::rng::{Pcg32, Purpose};
use crate::sample::{Params, Past, Penalised};
use crate::spec::{generate, verify_draft, Finish, Request, Target};
use crate::Id;

/// The answer to a case of a section. Panics for a section that does not exist.
pub fn answer(section: &str, case: &Json) -> Json {
    match section {
        "exp_log" => exp_log(case),
        "generator" => generator(case),
        "categorical" => {
            object([("outcome", sample_categorical(&case.get("p").floats(), case.get("u").float()).into())])
        }
        "rejection" => rejection(case),
        "sampler" => sampler(case),
        "lookup" | "context_ngram" => {
            let mut draft = described(section, case);
            let proposal = draft.propose(&case.get("ctx").sizes(), case.get("k").size(), None);
            object([("draft", proposal.ids.into())])
        }
        "ngram_draft" => ngram_draft(case),
        "verification" => verification(case),
        "generation" => generation(case),
        _ => panic!("there is no section {section:?}"),
    }
}

fn exp_log(case: &Json) -> Json {
    let map = |key, f: fn(f64) -> f64| -> Vec<f64> { case.get(key).floats().into_iter().map(f).collect() };
    object([("exp", map("x", f64::exp).into()), ("log", map("y", f64::ln).into())])
}

fn generator(case: &Json) -> Json {
    let mut rng = Pcg32::new(case.get("seed").u64(), case.get("seq").u64());
    for _ in 0..case.get("drawn_before").size() {
        rng.next_u32();
    }
    if let Json::Text(purpose) = case.get("purpose") {
        rng = rng.substream(match purpose.as_str() {
            "init" => Purpose::Init,
            "dropout" => Purpose::Dropout,
            "shuffle" => Purpose::Shuffle,
            "sample" => Purpose::Sample,
            "mutation" => Purpose::Mutation,
            _ => panic!("there is no purpose {purpose:?}"),
        });
    }
    let returns: Vec<Json> = case.get("calls").list().iter().map(|call| called(&mut rng, call.list())).collect();
    let (state, inc) = rng.state();
    object([
        ("returns", returns.into()),
        ("state", state.to_string().as_str().into()),
        ("inc", inc.to_string().as_str().into()),
    ])
}

fn called(rng: &mut Pcg32, call: &[Json]) -> Json {
    match call[0].text() {
        "next_u32" => rng.next_u32().into(),
        "uniform" => rng.uniform().into(),
        "below" => (rng.below(call[1].size() as u64) as usize).into(),
        "shuffle" => {
            let mut xs: Vec<usize> = (0..call[1].size()).collect();
            rng.shuffle(&mut xs);
            xs.into()
        }
        name => panic!("the generator has no {name:?}"),
    }
}

fn rejection(case: &Json) -> Json {
    let (p, q) = (case.get("p").floats(), case.get("q").floats());
    let (u_accept, u_resample) = (case.get("u_accept").float(), case.get("u_resample").float());
    let (token, accepted) = speculative_step(&p, &q, case.get("x").size(), u_accept, u_resample);
    object([
        ("overlap", acceptance_probability(&p, &q).into()),
        ("residual", residual(&p, &q).into()),
        ("token", token.into()),
        ("accepted", accepted.into()),
    ])
}

fn params(case: &Json) -> Params {
    let knobs = case.get("params");
    Params {
        temperature: knobs.get("temperature").float(),
        top_k: knobs.get("top_k").size(),
        top_p: knobs.get("top_p").float(),
        min_p: knobs.get("min_p").float(),
        repetition_penalty: knobs.get("repetition_penalty").float(),
        presence_penalty: knobs.get("presence_penalty").float(),
        frequency_penalty: knobs.get("frequency_penalty").float(),
    }
}

fn sampler(case: &Json) -> Json {
    let (logits, p) = (case.get("logits").floats(), params(case));
    let (prompt, mut history) = (case.get("prompt").sizes(), case.get("history").sizes());
    let mut rng = Pcg32::for_request(case.get("seed").u64());
    let penalised = |history: &[Id]| Penalised::new(&logits, &p, Past { prompt: &prompt, history });
    let q = penalised(&history).distribution(&p);
    let kept: Vec<Id> = (0..q.len()).filter(|&id| q[id] > 0.0).collect();
    let before = history.len();
    let mut logprobs = Vec::new();
    for _ in 0..case.get("draws").size() {
        let target = penalised(&history);
        let id = target.choose(&p, &mut rng);
        logprobs.push(target.logprob(id));
        history.push(id);
    }
    let probs: Vec<f64> = kept.iter().map(|&id| q[id]).collect();
    object([
        ("kept", kept.into()),
        ("probs", probs.into()),
        ("ids", history.split_off(before).into()),
        ("logprobs", logprobs.into()),
        ("next_u32", rng.next_u32().into()),
    ])
}

/// The draft that a case describes: the table of a model of counts holds the row after each id.
fn described(kind: &str, case: &Json) -> Box<dyn Draft> {
    let size = |key| case.get(key).size();
    match kind {
        "lookup" => Box::new(PromptLookup { max_ngram: size("max_ngram"), min_ngram: size("min_ngram") }),
        "context_ngram" => Box::new(ContextNgram { max_ngram: size("max_ngram") }),
        "ngram" => {
            let table = case.get("table").rows();
            Box::new(Ngram(move |ctx: &[Id]| table[ctx[ctx.len() - 1]].clone()))
        }
        _ => panic!("there is no draft {kind:?}"),
    }
}

fn ngram_draft(case: &Json) -> Json {
    let seed = case.get("seed");
    let mut rng = (!seed.is_null()).then(|| Pcg32::for_request(seed.u64()));
    let mut draft = described("ngram", case);
    let proposal = draft.propose(&case.get("ctx").sizes(), case.get("k").size(), rng.as_mut());
    object([
        ("draft", proposal.ids.into()),
        ("probs", proposal.probs.into()),
        ("next_u32", rng.map(|mut rng| rng.next_u32()).into()),
    ])
}

fn verification(case: &Json) -> Json {
    let probs = case.get("draft_probs");
    let draft = Proposal { ids: case.get("draft").sizes(), probs: (!probs.is_null()).then(|| probs.rows()) };
    let (prompt, output) = (case.get("prompt").sizes(), case.get("output").sizes());
    let past = Past { prompt: &prompt, history: &output };
    let mut rng = Pcg32::for_request(case.get("seed").u64());
    let (emitted, n) = verify_draft(&case.get("logits").rows(), &draft, &params(case), past, &mut rng);
    object([("emitted", emitted.into()), ("n_accepted", n.into()), ("next_u32", rng.next_u32().into())])
}

/// A target given as a table: which row comes next follows from every id that the cache holds.
struct TableModel {
    rows: Vec<Vec<f64>>,
    max_len: usize,
    cache: Vec<Id>,
}

impl Target for TableModel {
    fn max_len(&self) -> usize {
        self.max_len
    }

    fn cached(&self) -> usize {
        self.cache.len()
    }

    fn forward(&mut self, ids: &[Id]) -> Vec<Vec<f64>> {
        let before = self.cache.len();
        self.cache.extend(ids);
        let states = self.cache.iter().scan(0, |state, id| {
            *state = (3 * *state + id + 1) % self.rows.len();
            Some(*state)
        });
        states.skip(before).map(|state| self.rows[state].clone()).collect()
    }

    fn truncate(&mut self, n: usize) {
        self.cache.truncate(n);
    }
}

fn generation(case: &Json) -> Json {
    let mut target =
        TableModel { rows: case.get("rows").rows(), max_len: case.get("max_len").size(), cache: Vec::new() };
    let request = Request {
        prompt: case.get("prompt").sizes(),
        params: params(case),
        seed: case.get("seed").u64(),
        max_tokens: case.get("max_tokens").size(),
        eos_ids: case.get("eos_ids").sizes(),
    };
    let asked = case.get("draft");
    let mut draft = (!asked.is_null()).then(|| described(asked.get("kind").text(), asked));
    let draft: Option<&mut dyn Draft> = match &mut draft {
        Some(draft) => Some(draft.as_mut()),
        None => None,
    };
    let done = generate(&mut target, draft, &request, case.get("k").size());
    let cache_lengths: Vec<usize> = done.rounds.iter().map(|round| round.cached).collect();
    let rounds: Vec<Json> = done
        .rounds
        .into_iter()
        .map(|round| {
            let kind = if round.accepted < round.draft.len() { "correction" } else { "bonus" };
            Json::List(vec![round.draft.into(), round.accepted.into(), round.token.into(), kind.into()])
        })
        .collect();
    let finish = match done.finish {
        Finish::Length => "length",
        Finish::Stop => "stop",
    };
    object([
        ("ids", done.ids.into()),
        ("logprobs", done.logprobs.into()),
        ("rounds", rounds.into()),
        ("cache_lengths", cache_lengths.into()),
        ("finish", finish.into()),
    ])
}
