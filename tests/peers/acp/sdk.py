"""The Python SDK as a client: a tool that is allowed and one that is refused, a cancelled turn, and the session in a
second process. The SDK validates every frame with strict types. The policy must ask about `shell`.
Usage: sdk.py PARLOR FOLDER"""

import asyncio
import os
import sys

from acp import PROTOCOL_VERSION, spawn_agent_process, text_block
from acp.schema import AllowedOutcome, RequestPermissionResponse

PARLOR, FOLDER = sys.argv[1:]


class Editor:
    """Records the updates of a connection, and answers permission requests with the option of one kind."""

    def __init__(self):
        self.updates = []
        self.permission = "allow_once"
        self.asked = []
        self.arrived = asyncio.Condition()

    async def session_update(self, session_id, update, **_):
        async with self.arrived:
            self.updates.append(update)
            self.arrived.notify_all()

    async def request_permission(self, session_id, tool_call, options, **_):
        self.asked.append(tool_call.title)
        option = next(option for option in options if option.kind == self.permission)
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=option.option_id)
        )

    def statuses(self):
        return [getattr(update, "status", None) for update in self.updates]

    async def until(self, found):
        async with self.arrived:
            await self.arrived.wait_for(lambda: any(map(found, self.updates)))

    def text(self, kind):
        return "".join(update.content.text for update in self.updates if update.session_update == kind)


async def begin(editor, talk):
    # By default the SDK passes only a few variables on, and not PARLOR_HOME.
    async with spawn_agent_process(editor, PARLOR, "stdio", "acp", env=dict(os.environ)) as (agent, _):
        answer = await agent.initialize(protocol_version=PROTOCOL_VERSION)
        assert answer.protocol_version == 1, answer
        await talk(agent)


async def main():
    editor, sessions = Editor(), []

    async def first(agent):
        session = (await agent.new_session(cwd=FOLDER, mcp_servers=[])).session_id
        sessions.append(session)
        answer = await agent.prompt(session_id=session, prompt=[text_block("!echo from the tool")])
        assert answer.stop_reason == "end_turn", answer
        assert "completed" in editor.statuses() and len(editor.asked) == 1, (editor.asked, editor.updates)

        editor.updates.clear()
        editor.permission = "reject_once"
        answer = await agent.prompt(session_id=session, prompt=[text_block("!echo refused")])
        assert answer.stop_reason == "end_turn", answer
        assert "failed" in editor.statuses() and "completed" not in editor.statuses(), editor.updates
        assert "echo refused" in editor.asked[1], editor.asked

        editor.updates.clear()
        turn = asyncio.create_task(agent.prompt(session_id=session, prompt=[text_block("/wait 600")]))
        await editor.until(lambda update: update.session_update == "agent_message_chunk")
        await agent.cancel(session_id=session)
        assert (await turn).stop_reason == "cancelled"

    async def second(agent):
        editor.updates.clear()
        await agent.load_session(cwd=FOLDER, session_id=sessions[0], mcp_servers=[])
        prompts = editor.text("user_message_chunk")
        assert prompts == "!echo from the tool!echo refused/wait 600", prompts
        assert "from the tool" in editor.text("agent_message_chunk"), editor.updates
        answer = await agent.prompt(session_id=sessions[0], prompt=[text_block("/say and again")])
        assert answer.stop_reason == "end_turn", answer
        assert editor.text("agent_message_chunk").endswith("and again"), editor.updates

    await begin(editor, first)
    await begin(editor, second)
    print("acp: the Python SDK held its conversation")


asyncio.run(asyncio.wait_for(main(), 100))
