//! The methods that open, list, close and delete sessions.

use std::path::{Path, PathBuf};
use std::time::Instant;

use agent_client_protocol_schema::v1::{
    CloseSessionRequest, CloseSessionResponse, DeleteSessionRequest, DeleteSessionResponse, Error,
    ListSessionsRequest, ListSessionsResponse, LoadSessionResponse, NewSessionResponse, RequestId,
    ResumeSessionResponse, SessionInfo,
};
use parlor_vocab::{
    AgentChoice, FrontendReply, FrontendRequest, NewSession, RegistryReply, RegistryRequest, Seq,
    SessionCommand, SessionId, SessionRefusal, WatchFrom,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::dispatch::decode;
use super::machine::{AcpMachine, Answer, DELETE_RETRY, answer_error, registry_reply};
use super::mcp_servers::{RequestedServers, Servers};
use super::open_session::{EndingKind, OpenSession, Opening, OpeningKind};
use super::options::{OptionValues, modes, options};
use super::pending::{Deletion, ExistingSession, NewFolder, Pending, ServersUse};
use super::{DOOR, LIST_PAGE, MAX_SESSIONS, code};

/// How often the door tries to delete a session whose run has been told to stop.
const DELETE_ATTEMPTS: u32 = 200;

/// The parameters that open a session, without those that contain secrets.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OpenParams {
    cwd: PathBuf,
    session_id: Option<String>,
}

impl AcpMachine {
    pub(super) fn new_session(&mut self, id: &RequestId, params: Option<&RawValue>) -> Result<(), Error> {
        let open: OpenParams = decode(params)?;
        let servers = RequestedServers::decode(params, Servers::Required)?;
        self.check_room()?;
        let folder = self.working_folder(open.cwd)?;
        let check = FrontendRequest::CheckFolder(folder.clone());
        self.out.submit(check, Pending::CheckFolder(id.clone(), NewFolder { folder, servers }));
        Ok(())
    }

    pub(super) fn on_folder_checked(&mut self, id: &RequestId, new: NewFolder, answer: Answer) {
        match answer {
            Ok(FrontendReply::Done) => {
                let new_session = NewSession {
                    title: None,
                    door: DOOR.to_owned(),
                    folder: new.folder.clone(),
                    choice: AgentChoice::default(),
                    system: None,
                    forked_from: None,
                };
                let create = RegistryRequest::Create { id: None, new_session: Box::new(new_session) };
                self.out.registry(create, Pending::Create(id.clone(), new));
            }
            Ok(FrontendReply::Failed(reason)) => self.out.error(id, &code::invalid_params(&reason)),
            other => self.out.error(id, &answer_error(other)),
        }
    }

    pub(super) fn on_created(&mut self, now: Instant, id: &RequestId, new: NewFolder, answer: Answer) {
        match registry_reply(answer) {
            Ok(RegistryReply::Created(session)) => {
                let opening = Opening { id: id.clone(), kind: OpeningKind::New, until: None };
                let open = OpenSession::new(new.folder, OptionValues::default(), opening);
                self.sessions.insert(session.clone(), open);
                let watch = ServersUse::Watch(WatchFrom::At(Seq::START));
                self.use_servers(now, session, new.servers, watch);
            }
            Ok(_) => self.out.error(id, &code::refused(&SessionRefusal::Internal)),
            Err(error) => self.out.error(id, &error),
        }
    }

    pub(super) fn load_session(
        &mut self,
        now: Instant,
        id: &RequestId,
        params: Option<&RawValue>,
    ) -> Result<(), Error> {
        let servers = RequestedServers::decode(params, Servers::Required)?;
        self.open_existing(now, id, params, OpeningKind::Load, servers)
    }

    pub(super) fn resume_session(
        &mut self,
        now: Instant,
        id: &RequestId,
        params: Option<&RawValue>,
    ) -> Result<(), Error> {
        let servers = RequestedServers::decode(params, Servers::Optional)?;
        self.open_existing(now, id, params, OpeningKind::Resume, servers)
    }

    fn open_existing(
        &mut self,
        now: Instant,
        id: &RequestId,
        params: Option<&RawValue>,
        kind: OpeningKind,
        servers: RequestedServers,
    ) -> Result<(), Error> {
        let open: OpenParams = decode(params)?;
        let name = open.session_id.ok_or_else(|| code::invalid_params("missing field `sessionId`"))?;
        let session = SessionId::parse(&name).map_err(|_| code::unknown_session(&name))?;
        let folder = self.working_folder(open.cwd)?;
        match self.sessions.get(&session) {
            None => self.check_room()?,
            Some(open) if open.opening.is_some() || open.ending.is_some() => {
                return Err(code::invalid_request("the session is being opened or closed"));
            }
            Some(_) if self.out.starts_servers_of(&session) => {
                return Err(code::invalid_request("the MCP servers of the session are starting"));
            }
            Some(open) if kind == OpeningKind::Resume => {
                check_folder(&open.folder, &folder)?;
                self.use_servers(now, session, servers, ServersUse::Resumed(id.clone()));
                return Ok(());
            }
            Some(_) => {}
        }
        let existing = ExistingSession { id: id.clone(), session: session.clone(), folder, kind, servers };
        self.out.submit(FrontendRequest::DescribeSession(session), Pending::Describe(existing));
        Ok(())
    }

    pub(super) fn on_described(&mut self, now: Instant, existing: ExistingSession, answer: Answer) {
        let ExistingSession { id, session, folder, kind, servers } = existing;
        let found = match answer {
            Ok(FrontendReply::Description(Some(found))) => *found,
            Ok(FrontendReply::Description(None)) => {
                return self.out.error(&id, &code::unknown_session(session.as_str()));
            }
            other => return self.out.error(&id, &answer_error(other)),
        };
        if let Err(error) = check_folder(&found.folder, &folder) {
            return self.out.error(&id, &error);
        }
        let opening = Opening { id: id.clone(), kind, until: None };
        match self.sessions.get_mut(&session) {
            None => {
                let values = OptionValues { choice: found.choice, mode: found.mode };
                let open = OpenSession::new(found.folder, values, opening);
                self.sessions.insert(session.clone(), open);
            }
            Some(open) if open.opening.is_some() || open.ending.is_some() => {
                let error = code::invalid_request("the session is being opened or closed");
                return self.out.error(&id, &error);
            }
            Some(open) => open.begin_again(opening),
        }
        let after = match kind {
            OpeningKind::New | OpeningKind::Load => WatchFrom::At(Seq::START),
            OpeningKind::Resume => WatchFrom::Now,
        };
        self.use_servers(now, session, servers, ServersUse::Watch(after));
    }

    /// Answers `session/resume` for a session that is open already. Its watch goes on: it has reported everything so far.
    pub(super) fn answer_resumed(&mut self, now: Instant, id: &RequestId, session: &SessionId) {
        let Some(open) = self.sessions.get(session) else {
            return self.out.error(id, &code::unknown_session(session.as_str()));
        };
        let resumed = ResumeSessionResponse::new()
            .modes(modes(&self.params, &open.options))
            .config_options(options(&self.params, &open.options));
        self.out.result(id, &resumed);
        self.with_session(now, session, |session, context, effects| {
            session.show_commands(context, effects);
            session.show_note(context, effects);
        });
    }

    pub(super) fn watch(&mut self, session: SessionId, after: WatchFrom) {
        let request = RegistryRequest::Watch { session: session.clone(), after, deltas: true };
        self.out.registry(request, Pending::Watch(session));
    }

    pub(super) fn on_watching(&mut self, now: Instant, session: &SessionId, answer: Answer) {
        let Some(open) = self.sessions.get_mut(session) else { return };
        match registry_reply(answer) {
            Ok(RegistryReply::Watching { head, .. }) => {
                if let Some(opening) = &mut open.opening {
                    opening.until = Some(head);
                }
                self.answer_opening(now, session);
            }
            Ok(_) | Err(_) if open.opening.is_none() => {}
            failed => {
                let error = failed.err().unwrap_or_else(|| code::refused(&SessionRefusal::Internal));
                if let Some(opening) = self.sessions.remove(session).and_then(|open| open.opening) {
                    self.out.error(&opening.id, &error);
                }
            }
        }
    }

    /// Answers the request that opens a session, if the client has got all that comes before the answer.
    pub(super) fn answer_opening(&mut self, now: Instant, id: &SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let is_complete = |opening: &mut Opening| match (opening.kind, opening.until) {
            (_, None) => false,
            (OpeningKind::New | OpeningKind::Resume, Some(_)) => true,
            (OpeningKind::Load, Some(until)) => session.last >= until,
        };
        let Some(Opening { id: request, kind, .. }) = session.opening.take_if(is_complete) else { return };
        if kind == OpeningKind::Load {
            self.with_session(now, id, |session, context, effects| session.push_usage(context, effects));
        }
        let Some(session) = self.sessions.get(id) else { return };
        let (modes, options) =
            (modes(&self.params, &session.options), options(&self.params, &session.options));
        match kind {
            OpeningKind::New => {
                let response = NewSessionResponse::new(id.as_str().to_owned());
                self.out.result(&request, &response.modes(modes).config_options(options));
            }
            OpeningKind::Load => {
                let response = LoadSessionResponse::new().modes(modes).config_options(options);
                self.out.result(&request, &response);
            }
            OpeningKind::Resume => {
                let response = ResumeSessionResponse::new().modes(modes).config_options(options);
                self.out.result(&request, &response);
            }
        }
        self.with_session(now, id, |session, context, effects| {
            session.show_commands(context, effects);
            session.show_note(context, effects);
            session.ask_pending(effects);
        });
    }

    pub(super) fn list_sessions(&mut self, id: &RequestId, params: Option<&RawValue>) -> Result<(), Error> {
        let request: ListSessionsRequest = decode(params)?;
        let folder = request.cwd.map(|cwd| self.working_folder(cwd)).transpose()?;
        let request = FrontendRequest::ListSessions { folder, after: request.cursor, limit: LIST_PAGE };
        self.out.submit(request, Pending::List(id.clone()));
        Ok(())
    }

    pub(super) fn on_listed(&mut self, id: &RequestId, answer: Answer) {
        match answer {
            Ok(FrontendReply::Sessions { sessions, next }) => {
                let sessions = sessions.into_iter().map(|session| {
                    SessionInfo::new(session.id.as_str().to_owned(), session.folder)
                        .title(session.title)
                        .updated_at(session.updated.rfc3339())
                });
                self.out.result(id, &ListSessionsResponse::new(sessions.collect()).next_cursor(next));
            }
            Ok(FrontendReply::UnknownPage) => {
                self.out.error(id, &code::invalid_params("`cursor` is not the `nextCursor` of a list"))
            }
            other => self.out.error(id, &answer_error(other)),
        }
    }

    pub(super) fn close_session(
        &mut self,
        now: Instant,
        id: &RequestId,
        params: Option<&RawValue>,
    ) -> Result<(), Error> {
        let request: CloseSessionRequest = decode(params)?;
        let session = self.open_session(&request.session_id.0)?;
        self.end_session(now, id, &session, EndingKind::Close)
    }

    pub(super) fn on_released(&mut self, id: &RequestId) {
        self.out.result(id, &CloseSessionResponse::new());
    }

    pub(super) fn delete_session(
        &mut self,
        now: Instant,
        id: &RequestId,
        params: Option<&RawValue>,
    ) -> Result<(), Error> {
        let request: DeleteSessionRequest = decode(params)?;
        let Ok(session) = SessionId::parse(&request.session_id.0) else {
            // There is no session with such an id, so it is gone.
            self.out.result(id, &DeleteSessionResponse::new());
            return Ok(());
        };
        if self.sessions.contains_key(&session) {
            return self.end_session(now, id, &session, EndingKind::Delete);
        }
        self.delete(Deletion { id: id.clone(), session, refusals: 0 });
        Ok(())
    }

    /// Cancels the client's prompts in a session. The session ends when they are answered.
    fn end_session(
        &mut self,
        now: Instant,
        id: &RequestId,
        session: &SessionId,
        kind: EndingKind,
    ) -> Result<(), Error> {
        if self.sessions.get(session).is_some_and(|open| open.opening.is_some() || open.ending.is_some()) {
            return Err(code::invalid_request("the session is being opened or closed"));
        }
        self.with_session(now, session, |open, _, effects| {
            open.ending = Some((id.clone(), kind));
            open.cancel(None, effects);
        });
        Ok(())
    }

    pub(super) fn delete(&mut self, deletion: Deletion) {
        let request = RegistryRequest::Delete(deletion.session.clone());
        self.out.registry(request, Pending::Delete(deletion));
    }

    pub(super) fn on_deleted(&mut self, now: Instant, mut deletion: Deletion, answer: Answer) {
        match answer {
            Ok(FrontendReply::Registry(RegistryReply::Done)) | Err(SessionRefusal::UnknownSession(_)) => {
                self.out.result(&deletion.id, &DeleteSessionResponse::new());
            }
            Err(SessionRefusal::Busy { .. } | SessionRefusal::Compacting)
                if deletion.refusals < DELETE_ATTEMPTS =>
            {
                if deletion.refusals == 0 {
                    let session = deletion.session.clone();
                    self.out.command(&session, SessionCommand::ClearQueue, Pending::Ignored);
                    let stop = SessionCommand::Stop { run: None, reason: None };
                    self.out.command(&session, stop, Pending::Ignored);
                }
                deletion.refusals += 1;
                self.deletions.push((now + DELETE_RETRY, deletion));
                self.wake_at(now + DELETE_RETRY);
            }
            other => self.out.error(&deletion.id, &answer_error(other)),
        }
    }

    /// The folder that a client names. Clients that start the door in their own folder may write `.`.
    fn working_folder(&self, folder: PathBuf) -> Result<PathBuf, Error> {
        match &self.params.folder {
            Some(own) if folder == Path::new(".") => Ok(own.clone()),
            _ if folder.is_absolute() => Ok(folder),
            _ => Err(code::invalid_params(&format!("`cwd` must be an absolute path: {}", folder.display()))),
        }
    }

    fn check_room(&self) -> Result<(), Error> {
        let opens = |pending: &&Pending| {
            matches!(pending, Pending::CheckFolder(..) | Pending::Create(..) | Pending::Describe(_))
        };
        let opening = self.out.pending.values().filter(opens).count();
        if self.sessions.len() + opening >= MAX_SESSIONS { Err(code::too_many_sessions()) } else { Ok(()) }
    }
}

fn check_folder(folder: &Path, asked: &Path) -> Result<(), Error> {
    if folder == asked {
        return Ok(());
    }
    Err(code::invalid_params(&format!(
        "the working folder of the session is {}, not {}",
        folder.display(),
        asked.display()
    )))
}
