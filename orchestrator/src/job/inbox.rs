//! The inputs of the loop of a step. All inputs that are ready are handled together.

use futures_util::FutureExt as _;

use super::background::TaskResult;
use super::running_step::StepUpdate;
use super::step::StepDriver;
use crate::events::LogEvent;
use crate::fleet::FleetEvent;
use crate::relaunch::Action;

/// Inputs from one source before the next source is served.
const INPUTS_AT_ONCE: usize = 256;

/// An input of the loop.
pub(super) enum Input {
    /// A signal to this process.
    Signal(&'static str),
    /// Actions that waited for the journal and may be performed now.
    Released(Vec<Action>),
    /// An event that is only logged and shown.
    Log(LogEvent),
    /// The result of a background task.
    Task(TaskResult),
    /// An event of an agent.
    Fleet(FleetEvent),
    /// An event of the ranks.
    Step(StepUpdate),
}

impl StepDriver<'_> {
    /// The next input. Cancel safe.
    pub(super) async fn next_input(&mut self) -> Input {
        tokio::select! {
            // Signals before anything else.
            biased;
            name = self.signals.next() => Input::Signal(name),
            commit = self.record.written() => Input::Released(self.held.release(commit, &self.machine)),
            Some(event) = self.inbox.events.recv() => Input::Log(event),
            Some(result) = self.inbox.results.recv() => Input::Task(result),
            event = self.agents.next() => Input::Fleet(event),
            update = self.ranks.next() => Input::Step(update),
        }
    }

    /// Handles an input and all others that are ready.
    pub(super) fn receive_ready(&mut self, first: Input) {
        self.receive(first);
        while let Some(name) = self.signals.next().now_or_never() {
            self.receive(Input::Signal(name));
        }
        while let Some(commit) = self.record.written().now_or_never() {
            let released = self.held.release(commit, &self.machine);
            self.receive(Input::Released(released));
        }
        while let Ok(event) = self.inbox.events.try_recv() {
            self.receive(Input::Log(event));
        }
        for _ in 0..INPUTS_AT_ONCE {
            let Ok(result) = self.inbox.results.try_recv() else { break };
            self.receive(Input::Task(result));
        }
        for _ in 0..INPUTS_AT_ONCE {
            let Some(event) = self.agents.next().now_or_never() else { break };
            self.receive(Input::Fleet(event));
        }
        for _ in 0..INPUTS_AT_ONCE {
            let Some(update) = self.ranks.next().now_or_never() else { break };
            self.receive(Input::Step(update));
        }
    }

    fn receive(&mut self, input: Input) {
        match input {
            Input::Signal(name) => self.signal(name),
            Input::Released(actions) => actions.into_iter().for_each(|action| self.perform(action)),
            Input::Log(event) => self.reporter.emit(event),
            Input::Task(result) => self.task_result(result),
            Input::Fleet(event) => self.fleet_event(event),
            Input::Step(update) => self.step_update(update),
        }
    }
}
