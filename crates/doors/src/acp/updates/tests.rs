use agent_client_protocol_schema::v1::RequestId;

use super::super::open_session::{Opening, OpeningKind};
use super::*;

#[test]
fn the_answer_of_a_choice_comes_before_the_commands_of_the_chosen_agent() {
    let params = options::tests::params();
    let context = Context { params: &params, gates: Gates::default(), now: Instant::now() };
    let opening = Opening { id: RequestId::Number(1), kind: OpeningKind::New, until: None };
    let mut session = OpenSession::new("/".into(), OptionValues::default(), opening);
    let mut effects = Vec::new();
    session.show_commands(&context, &mut effects);
    session.pending_choices = 1;
    let local = options::choose(&params, &session.options.choice, options::AGENT, "local").unwrap();
    session.on_choice(&context, &local, &mut effects);
    assert_eq!(effects.len(), 1, "the answer has not been sent yet: {effects:?}");
    session.pending_choices = 0;
    session.show_new_commands(&context, &mut effects);
    session.show_new_commands(&context, &mut effects);
    assert_eq!(effects.len(), 2, "the commands are shown once: {effects:?}");
}

#[test]
fn a_late_event_does_not_take_back_a_later_choice() {
    let params = options::tests::params();
    let context = Context { params: &params, gates: Gates::default(), now: Instant::now() };
    let opening = Opening { id: RequestId::Number(1), kind: OpeningKind::New, until: None };
    let mut session = OpenSession::new("/".into(), OptionValues::default(), opening);
    let choice =
        |name| options::choose(&params, &vocab::AgentChoice::default(), options::AGENT, name).unwrap();
    let (first, second) = (choice("local"), choice("main"));
    // Both are answered before the watch reports the first.
    session.unseen_choices.extend([first.clone(), second.clone()]);
    session.options = session.options.changed(&first).changed(&second);
    let (chosen, mut effects) = (session.options.clone(), Vec::new());
    session.on_choice(&context, &first, &mut effects);
    session.on_choice(&context, &second, &mut effects);
    assert_eq!((&session.options, effects.len()), (&chosen, 0), "{effects:?}");
    // The same choice of another client is shown.
    session.on_choice(&context, &first, &mut effects);
    assert!(session.options != chosen && !effects.is_empty());
}
