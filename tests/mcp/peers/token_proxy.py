"""Passes HTTP requests on to parlor with its token: the conformance suite cannot send one. Prints its own port.

Usage: token_proxy.py PORT TOKEN
"""
import asyncio, sys

PORT, TOKEN = int(sys.argv[1]), sys.argv[2]


async def pipe(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def serve(reader, writer):
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return writer.close()
    lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"connection:")]
    # One request for each connection, so that every request passes through here.
    lines += [b"Authorization: Bearer " + TOKEN.encode(), b"Connection: close"]
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", PORT)
    far_writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
    await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
