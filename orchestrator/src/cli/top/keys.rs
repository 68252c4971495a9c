//! What the keys of `holdfast top` do: a state machine without a terminal.

use ratatui::termion::event::Key;

use super::view::Picture;
use crate::cli::status::NodeLine;

/// True for the keys that have a meaning, and for letters. Any other one answers no question.
pub(super) fn is_known(key: Key) -> bool {
    let moves = matches!(key, Key::Up | Key::Down | Key::PageUp | Key::PageDown | Key::Home | Key::End);
    moves || matches!(key, Key::Char(_) | Key::Esc | INTERRUPT | REDRAW)
}

const INTERRUPT: Key = Key::Ctrl('c');
const REDRAW: Key = Key::Ctrl('l');

/// What the user requests of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Save a checkpoint now.
    Checkpoint,
    /// Stop at the next checkpoint; pairs stop now.
    Halt,
    Exclude {
        node: String,
        /// Move its ranks at once.
        now: bool,
    },
    Include {
        node: String,
    },
}

/// What follows from a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    Quit,
    Redraw,
    Send(Request),
}

/// A question about a request, with the keys that confirm it. Any other key is a no.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    text: String,
    answers: Vec<(char, Request)>,
}

/// What the keys have done until now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    /// The number of the selected node.
    pub(super) selected: usize,
    question: Option<Question>,
    /// What became of the last request.
    note: Option<String>,
}

/// The nodes that PageUp and PageDown pass.
const PAGE: usize = 10;

impl Keys {
    /// With this node selected.
    #[cfg(test)]
    pub(super) fn at(selected: usize) -> Keys {
        Keys { selected, ..Keys::default() }
    }

    /// What is shown in the last line in place of the keys.
    pub(super) fn line(&self) -> Option<&str> {
        self.question.as_ref().map(|question| question.text.as_str()).or(self.note.as_deref())
    }

    /// True if an answer is waited for.
    pub(super) fn asks(&self) -> bool {
        self.question.is_some()
    }

    /// Shows what became of a request.
    pub(super) fn report(&mut self, text: String) {
        self.note = Some(text);
    }

    /// A key was pressed while this was shown.
    pub(super) fn pressed(&mut self, key: Key, shown: &Picture) -> Effect {
        let Picture { nodes, refusal, halts, .. } = shown;
        if let Some(question) = self.question.take() {
            return self.answered(key, question);
        }
        let last = nodes.len().saturating_sub(1);
        self.note = None;
        match key {
            Key::Char('q') | Key::Esc | INTERRUPT => return Effect::Quit,
            REDRAW => return Effect::Redraw,
            Key::Up | Key::Char('k') => self.selected = self.selected.saturating_sub(1),
            Key::Down | Key::Char('j') => self.selected += 1,
            Key::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            Key::PageDown => self.selected += PAGE,
            Key::Home => self.selected = 0,
            Key::End => self.selected = last,
            Key::Char('c' | 'h' | 'x' | 'i') if refusal.is_some() => self.note = refusal.map(str::to_owned),
            Key::Char('c') => self.ask("save a checkpoint now? y/n", vec![('y', Request::Checkpoint)]),
            Key::Char('h') => self.ask(format!("stop the job {halts}? y/n"), vec![('y', Request::Halt)]),
            Key::Char(key @ ('x' | 'i')) => match nodes.get(self.selected) {
                None => self.note = Some("no node is selected".to_owned()),
                Some(node) if key == 'x' => self.ask_to_exclude(node),
                Some(node) => self.ask_to_include(node),
            },
            _ => {}
        }
        self.selected = self.selected.min(last);
        Effect::Nothing
    }

    fn ask(&mut self, text: impl Into<String>, answers: Vec<(char, Request)>) {
        self.question = Some(Question { text: text.into(), answers });
    }

    fn ask_to_exclude(&mut self, node: &NodeLine) {
        let name = &node.name;
        if node.excluded.is_some() {
            self.note = Some(format!("{name} is excluded; i includes it again"));
            return;
        }
        let exclude = |now| Request::Exclude { node: name.clone(), now };
        match node.ranks.is_empty() {
            true => self.ask(format!("give {name} no ranks? y/n"), vec![('y', exclude(false))]),
            false => self.ask(
                format!("give {name} no ranks? y: after this generation, m: move its ranks now, n: no"),
                vec![('y', exclude(false)), ('m', exclude(true))],
            ),
        }
    }

    fn ask_to_include(&mut self, node: &NodeLine) {
        let node = match node {
            NodeLine { name, excluded: None, .. } => {
                self.note = Some(format!("{name} is not excluded"));
                return;
            }
            NodeLine { name, .. } => name.clone(),
        };
        self.ask(format!("use {node} again? y/n"), vec![('y', Request::Include { node })]);
    }

    fn answered(&mut self, key: Key, question: Question) -> Effect {
        if key == INTERRUPT {
            return Effect::Quit;
        }
        let chosen = question.answers.into_iter().find(|(answer, _)| key == Key::Char(*answer));
        match chosen {
            Some((_, request)) => {
                self.note = Some("requested; waiting for the answer".to_owned());
                Effect::Send(request)
            }
            None => {
                self.note = Some("nothing was changed".to_owned());
                Effect::Nothing
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, ranks: &[u32], excluded: Option<&str>) -> NodeLine {
        let excluded = excluded.map(str::to_owned);
        NodeLine { name: name.to_owned(), state: "used", ranks: ranks.to_vec(), reason: None, excluded }
    }

    fn picture() -> Picture {
        let nodes = vec![node("n1", &[0, 1], None), node("n2", &[], None), node("n3", &[], Some("GPU"))];
        Picture { nodes, halts: "at its next checkpoint", ..Picture::default() }
    }

    #[test]
    fn a_request_is_sent_after_its_question_was_confirmed_and_not_with_another_key() {
        let mut keys = Keys::default();
        for (key, request) in [('c', Request::Checkpoint), ('h', Request::Halt)] {
            assert_eq!(keys.pressed(Key::Char(key), &picture()), Effect::Nothing);
            assert!(keys.asks() && keys.line().unwrap().ends_with("? y/n"), "{keys:?}");
            assert_eq!(keys.pressed(Key::Char('n'), &picture()), Effect::Nothing);
            assert_eq!(keys.line(), Some("nothing was changed"));
            assert_eq!(keys.pressed(Key::Char('y'), &picture()), Effect::Nothing, "nothing was asked");
            keys.pressed(Key::Char(key), &picture());
            assert_eq!(keys.pressed(Key::Char('y'), &picture()), Effect::Send(request));
            assert!(!keys.asks());
        }
    }

    #[test]
    fn the_selected_node_is_excluded_or_included() {
        let mut keys = Keys::default();
        let exclude = |node: &str, now| Effect::Send(Request::Exclude { node: node.to_owned(), now });
        keys.pressed(Key::Char('x'), &picture());
        assert_eq!(keys.pressed(Key::Char('m'), &picture()), exclude("n1", true));
        keys.pressed(Key::Down, &picture());
        keys.pressed(Key::Char('x'), &picture());
        assert_eq!(keys.pressed(Key::Char('m'), &picture()), Effect::Nothing, "it has no ranks");
        keys.pressed(Key::Char('x'), &picture());
        assert_eq!(keys.pressed(Key::Char('y'), &picture()), exclude("n2", false));
        keys.pressed(Key::Char('i'), &picture());
        assert_eq!(keys.line(), Some("n2 is not excluded"));
        keys.pressed(Key::PageDown, &picture());
        assert_eq!(keys.selected, 2, "the last one");
        keys.pressed(Key::Char('x'), &picture());
        assert_eq!(keys.line(), Some("n3 is excluded; i includes it again"));
        keys.pressed(Key::Char('i'), &picture());
        let include = Effect::Send(Request::Include { node: "n3".to_owned() });
        assert_eq!(keys.pressed(Key::Char('y'), &picture()), include);
    }

    #[test]
    fn nothing_is_requested_where_it_is_refused_and_every_state_can_be_left() {
        let mut keys = Keys::default();
        for key in "chxi".chars() {
            let ended = Picture { refusal: Some("the job has ended"), ..picture() };
            assert_eq!(keys.pressed(Key::Char(key), &ended), Effect::Nothing);
            assert_eq!((keys.asks(), keys.line()), (false, Some("the job has ended")));
        }
        keys.pressed(Key::Char('x'), &Picture::default());
        assert_eq!((keys.asks(), keys.line()), (false, Some("no node is selected")));
        for key in [Key::Char('q'), Key::Esc, INTERRUPT] {
            assert_eq!(keys.pressed(key, &picture()), Effect::Quit);
        }
        keys.pressed(Key::Char('h'), &picture());
        assert_eq!(keys.pressed(INTERRUPT, &picture()), Effect::Quit);
    }
}
