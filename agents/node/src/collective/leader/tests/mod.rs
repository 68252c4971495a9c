//! The leader's machine, driven by a simulated cluster without threads, clocks or files.

mod awaiting;
mod background;
mod checkpoint;
mod datasets;
mod dispatch;
mod fetch;
mod flush;
mod gather;
mod halt;
mod layout;
mod levels;
mod members;
mod protection;
mod request;
mod restart;
mod resume;
mod window;
mod world;
