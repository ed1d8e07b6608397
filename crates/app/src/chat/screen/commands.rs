//! The slash commands of the chat. Any other text goes to the agent, also if it begins with a slash: agents have commands
//! of their own.

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandName {
    Help,
    Model,
    Agent,
    Mode,
    Reasoning,
    Compact,
    Undo,
    Diff,
    Fork,
    Resume,
    New,
    Rename,
    Export,
    Mcp,
    Cost,
    Steer,
    Quit,
}

/// One command with its help.
pub(super) struct CommandHelp {
    pub(super) name: CommandName,
    pub(super) text: &'static str,
    /// What follows it; empty if nothing does. In brackets if it may be left out.
    pub(super) argument: &'static str,
    pub(super) help: &'static str,
}

/// All commands, in the order of the help.
pub(super) const COMMANDS: [CommandHelp; 18] = [
    help(CommandName::Help, "/help", "", "show the commands and keys"),
    help(CommandName::Model, "/model", "NAME", "choose the model that answers from now on"),
    help(CommandName::Agent, "/agent", "NAME", "choose the agent that answers from now on"),
    help(CommandName::Mode, "/mode", "MODE", "how far tools reach: read-only, workspace or full"),
    help(CommandName::Reasoning, "/reasoning", "LEVEL", "how much the model reasons"),
    help(CommandName::Compact, "/compact", "", "replace the conversation so far by a summary"),
    help(CommandName::Undo, "/undo", "", "put back the files that the last answer changed"),
    help(CommandName::Diff, "/diff", "", "show what the last answer changed in files"),
    help(CommandName::Fork, "/fork", "", "go on in a copy of this session"),
    help(CommandName::Resume, "/resume", "[SESSION]", "go on in another session"),
    help(CommandName::New, "/new", "", "begin a new session"),
    help(CommandName::Rename, "/rename", "TITLE", "give the session a title"),
    help(CommandName::Export, "/export", "[FILE]", "write the conversation to a Markdown file"),
    help(CommandName::Mcp, "/mcp", "", "list the MCP servers"),
    help(CommandName::Cost, "/cost", "", "show the tokens and the cost of this session"),
    help(CommandName::Steer, "/steer", "TEXT", "add a text to the run that is active"),
    help(CommandName::Quit, "/quit", "", "leave; the session is saved"),
    help(CommandName::Quit, "/exit", "", "the same"),
];

const fn help(
    name: CommandName,
    text: &'static str,
    argument: &'static str,
    help: &'static str,
) -> CommandHelp {
    CommandHelp { name, text, argument, help }
}

/// The keys, for the help.
pub(super) const KEYS: [(&str, &str); 10] = [
    ("Enter", "send; while a run is active, the message waits for its turn"),
    ("Alt-Enter, Ctrl-J", "begin a new line"),
    ("Ctrl-S", "send to the active run, which reads it at its next step"),
    ("Esc, Ctrl-C", "stop the run; Ctrl-C twice leaves"),
    ("Ctrl-O", "show the last folded reasoning or tool call in full; again, the one before"),
    ("Up, Down", "recall what was sent before; with an empty line, take back a waiting message"),
    ("Ctrl-R", "search what was sent before"),
    ("Tab", "complete a command or a file"),
    ("@PATH", "mention a file"),
    ("!COMMAND", "run a shell command"),
];

/// A command with what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChatCommand {
    pub(super) name: CommandName,
    pub(super) argument: String,
}

impl ChatCommand {
    /// The command in a text that the user sent; `None` if the text is for the agent.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (word, argument) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let command = COMMANDS.iter().find(|command| command.text == word)?;
        let argument = argument.trim().to_owned();
        // What has no argument and gets one is a message: "/help me with this".
        let is_command = argument.is_empty() || !command.argument.is_empty();
        is_command.then_some(Self { name: command.name, argument })
    }
}

/// What is sent to the agent: two slashes at the start become one, so that a command of the agent is reached that has the
/// name of one of the chat.
pub(super) fn message_of(text: &str) -> &str {
    if text.starts_with("//") { text.get(1..).unwrap_or_default() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<(CommandName, String)> {
        ChatCommand::parse(text).map(|command| (command.name, command.argument))
    }

    #[test]
    fn only_the_chats_own_commands_are_commands() {
        assert_eq!(parse("/model  fast "), Some((CommandName::Model, "fast".to_owned())));
        assert_eq!(parse("/quit"), Some((CommandName::Quit, String::new())));
        for text in ["/say hi", "help", "/help me", "/modelx", "//help", ""] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!((message_of("//help"), message_of("/say x")), ("/help", "/say x"));
    }
}
