//! A connection between a member and the leader as a pair of channels.

use holdfast_wire::frame::{receive_async, send_async};
use tokio::sync::mpsc;

/// Makes a pair of channels of a connection; both end with it.
pub(super) fn carry<S, Out, In>(stream: S) -> (mpsc::UnboundedSender<Out>, mpsc::UnboundedReceiver<In>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    Out: serde::Serialize + Send + Sync + 'static,
    In: serde::de::DeserializeOwned + Send + 'static,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (out_sender, mut out_receiver) = mpsc::unbounded_channel::<Out>();
    let (in_sender, in_receiver) = mpsc::unbounded_channel();
    let reading = tokio::spawn(async move {
        while let Ok(message) = receive_async(&mut reader).await {
            if in_sender.send(message).is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        while let Some(message) = out_receiver.recv().await {
            if send_async(&mut writer, &message).await.is_err() {
                break;
            }
        }
        // Nobody sends any more: the link is given up, and the other end is to notice.
        reading.abort();
    });
    (out_sender, in_receiver)
}
