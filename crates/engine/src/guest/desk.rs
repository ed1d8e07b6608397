//! Carrying out what a caller asks.

use std::pin::Pin;
use std::sync::Arc;

use parlor_vocab::{HouseCommand, HouseReply, Overview, Refusal, Seq, SessionId};

use crate::house::Beginning;
use crate::{House, Watcher, files};

pub(super) type Answer = Result<HouseReply, Refusal>;

/// What becomes of a command.
pub(super) enum Carried {
    Out(HouseReply),
    /// It is handed over; the next one may follow.
    Over(Pin<Box<dyn Future<Output = Answer> + Send>>),
    /// Once this is answered there is something to tell.
    Watching {
        session: SessionId,
        watcher: Box<Watcher>,
        seen: Seq,
        head: Seq,
    },
    /// Nothing more is told of this session.
    Unwatch(SessionId),
}

/// Does what `command` says, as far as the next one has to wait for it.
pub(super) async fn carry_out(house: &Arc<House>, command: HouseCommand) -> Result<Carried, Refusal> {
    let reply = match command {
        HouseCommand::Create { id, birth } => HouseReply::Created(house.create(id, *birth).await?),
        HouseCommand::Fork { id, from, message } => {
            HouseReply::Created(house.fork(id, &from, message.as_ref()).await?)
        }
        HouseCommand::Session(id, command) => {
            let answer = house.submit(&id, command).await?;
            return Ok(Carried::Over(Box::pin(async { answer.await.map(HouseReply::Session) })));
        }
        HouseCommand::Look(id) => HouseReply::Overview(Box::new(overview(house, &id).await?)),
        HouseCommand::Watch { session, after } => {
            let Beginning { from, seen, head, is_unfinished } = house.beginning(&session, &after).await?;
            if is_unfinished {
                take_up(house, &session);
            }
            let watcher = Box::new(house.watch(&session, from).await);
            return Ok(Carried::Watching { session, watcher, seen, head });
        }
        HouseCommand::Unwatch(id) => return Ok(Carried::Unwatch(id)),
        HouseCommand::Leave(id) => {
            house.leave(&id).await?;
            return Ok(Carried::Unwatch(id));
        }
        HouseCommand::Delete(id) => {
            house.delete(&id).await?;
            HouseReply::Done
        }
        HouseCommand::ReadFiles { paths, max_bytes } => {
            HouseReply::Files(files::read_all(paths, max_bytes).await)
        }
        HouseCommand::Fetch { url, max_bytes } => {
            let house = Arc::clone(house);
            return Ok(Carried::Over(Box::pin(async move {
                Ok(HouseReply::Files(vec![house.fetch(&url, max_bytes).await]))
            })));
        }
        HouseCommand::StoreMedia(new) => HouseReply::Stored(house.store_media(new).await?),
        HouseCommand::ReadMedia { ids, max_bytes } => {
            HouseReply::Contents(house.read_media(&ids, max_bytes).await)
        }
    };
    Ok(Carried::Out(reply))
}

/// Opens a session whose log says that it runs, or did when the program ended. If the process that ran it is gone,
/// this ends the run and begins what waits: whoever watches waits for that, and may have nothing to say. In another
/// process, it stays as it is.
fn take_up(house: &Arc<House>, session: &SessionId) {
    let (house, session) = (Arc::clone(house), session.clone());
    tokio::spawn(async move { house.trouble(&session).await });
}

async fn overview(house: &House, id: &SessionId) -> Result<Overview, Refusal> {
    let session = house.view(id).await?;
    Ok(Overview {
        id: id.clone(),
        head: session.head(),
        title: session.title().map(str::to_owned),
        choice: session.choice().clone(),
        history: session.history().to_vec(),
        usage: session.usage(),
        queue: session.queue().cloned().collect(),
        active: session.active().cloned(),
    })
}
