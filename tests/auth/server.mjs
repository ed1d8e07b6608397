// An authorization server on a free local port. Prints its address as JSON, and exits when its standard input is closed.
// It accepts any login name; the mail address is derived from it.
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

// The library logs to standard output, of which the test reads only the first line.
console.log = console.info = () => {};

const grants = ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"];
const client = {
  application_type: "native",
  redirect_uris: ["http://127.0.0.1/callback"],
  response_types: ["code"],
  grant_types: grants,
};

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      { ...client, client_id: "public", token_endpoint_auth_method: "none" },
      { ...client, client_id: "confidential", client_secret: process.env.TEST_CLIENT_SECRET },
    ],
    claims: { openid: ["sub"], email: ["email"] },
    conformIdTokenClaims: false,
    cookies: { keys: ["any"] },
    features: { deviceFlow: { enabled: true }, revocation: { enabled: true } },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, email: `${id}@example.org` }) }),
    issueRefreshToken: () => true,
    rotateRefreshToken: true,
    ttl: { AccessToken: 3600, RefreshToken: 86400, IdToken: 3600, Grant: 86400, Session: 86400, Interaction: 3600, DeviceCode: 600 },
  });
  server.on("request", provider.callback());
  process.stdout.write(`${JSON.stringify({ issuer })}\n`);
});
process.stdin.resume().on("end", () => process.exit(0));
