package main

import (
	"regexp"
	"slices"
)

// part is one part of the admission path: functions of a package whose refusals are
// guards, and the packages whose tests should notice.
type part struct {
	dir string
	// files hold the functions; none means all of the package.
	files []string
	// denies names functions whose true is a refusal; in the others it is false.
	denies []string
	// says names functions whose text is a refusal unless it is empty.
	says []string
	// bounds names functions whose min and max keep within what is allowed.
	bounds []string
	// skip names functions that only look or say.
	skip []string
	// tests are packages beside the part's own.
	tests []string
}

// path is the way from a Start frame to a process, and what ends it.
func path() []part {
	return []part{
		{
			dir: "lease", files: []string{"verify.go", "cache.go", "chain.go", "codec.go", "field.go", "seal.go"},
			denies: []string{"Revoked"}, says: []string{"check", "checkSet"}, bounds: []string{"checkDepth", "checkNow", "lifeCap", "together"},
			skip: []string{"Seal"}, tests: []string{"gateway"},
		},
		{dir: "lease/envelope", denies: []string{"hasUnknown"}, skip: []string{"Seal", "Encode"}, tests: []string{"lease"}},
		{dir: "lease/revocation", denies: []string{"Revoked", "matches"}, skip: []string{"Seal", "Marshal"}, tests: []string{"gateway/revocations", "gateway"}},
		{dir: "protocol/name", files: []string{"name.go", "parse.go", "peer.go"}, tests: []string{"protocol", "lease"}},
		{
			dir: "protocol/argv", files: []string{"parse.go", "render.go", "value.go"}, denies: []string{"control", "fileReference", "joinedFile"}, says: []string{"reject"},
			tests: []string{"policy"},
		},
		{
			dir: "protocol", denies: []string{"hasUnknown"}, files: []string{"catalog.go", "codec.go", "control.go", "data.go", "frame.go", "message.go", "state.go"},
			skip: []string{
				"WriteFrame", "WriteGrease", "WriteCatalog", "WriteCatalogRefused", "WriteCatalogRequest", "WriteControlReply", "WriteControlRequest",
				"write", "writeMessage", "appendMessage", "appendFrame", "asViolation", "fill", "streamError",
			},
		},
		{
			dir: "policy", files: []string{"decide.go", "freeze.go", "policy.go"},
			skip: []string{"Explain", "String"}, tests: []string{"gateway"},
		},
		{dir: "policy/file", files: []string{"file.go"}, tests: []string{"policy"}},
		{dir: "policy/surface", files: []string{"form.go", "surface.go"}, skip: []string{"InputSchema", "listed"}, tests: []string{"policy"}},
		{
			dir:    "gateway",
			files:  []string{"admit.go", "run.go", "control.go", "live.go", "reload.go", "revoke.go", "capability.go", "locked.go", "pair.go"},
			denies: []string{"stop", "disallowed", "running"}, skip: []string{"linger"},
		},
		{
			dir: "gateway/operation", files: []string{"input.go", "output.go", "attachment.go", "operation.go"},
			skip: []string{ // flow, not refusals
				"Serve", "serve", "inputClosed", "follow", "exitAcked", "detach", "nextInput", "tookInput", "awaitSpace", "heldByCaller", "Overdue", "drain",
				"hasRoom", "behind",
			},
			tests: []string{"gateway"},
		},
		{
			dir: "gateway/ledger", files: []string{"views.go"}, denies: []string{"isClosed", "anyLive", "exhausted"}, skip: []string{"end"},
			tests: []string{"gateway"},
		},
		{dir: "gateway/grant", tests: []string{"gateway"}},
		{dir: "gateway/door", files: []string{"door.go", "guests.go", "penalty.go", "permits.go"}, denies: []string{"forgotten", "guest", "isGuestLocked"}, bounds: []string{"deny", "reserve"}, tests: []string{"gateway"}},
		{dir: "protocol/pair", files: []string{"link.go", "proof.go", "frame.go"}, skip: []string{"Text", "Write"}},
		{dir: "gateway/pairing", files: []string{"invitation.go", "desk.go"}, denies: []string{"isLocal"}, skip: []string{"String", "record"}},
		{dir: "gateway/client/pairing", files: []string{"join.go"}, tests: []string{"gateway/pairing"}},
		{dir: "gateway/client/mcp", files: []string{"call.go", "http.go", "lender.go", "server.go", "session.go", "tools.go"}, denies: []string{"isOver"}, skip: []string{"pipes", "show", "tell", "Serve"}},
		{dir: "gateway/client/mcp/form", files: []string{"form.go"}, skip: []string{"Schema"}, tests: []string{"gateway/client/mcp"}},
		{dir: "gateway/client/mcp/loopback", files: []string{"loopback.go"}, skip: []string{"Read", "Accept", "Close"}, tests: []string{"gateway/client/mcp"}},
		{dir: "gateway/client/mcp/stdio", files: []string{"batch.go", "line.go", "message.go", "transport.go"}, skip: []string{"coded", "writeMessage", "hasBatches"}},
		{dir: "gateway/admin", files: []string{"server.go", "ancestry_linux.go"}},
		{dir: "gateway/internal/ownersocket", tests: []string{"gateway/admin"}},
		{dir: "gateway/ownerfile", files: []string{"file.go", "key.go", "access_unix.go"}, skip: []string{"Create", "Replace", "CreateKey", "write", "syncDir"}},
		{dir: "gateway/revocations", denies: []string{"Revoked"}},
		{dir: "gateway/policyfile", files: []string{"judge.go", "watcher.go"}, skip: []string{"look"}},
		{dir: "localhost", files: []string{"canonical.go", "startcli.go", "start.go", "workspace.go"}, skip: []string{"LoginSpec"}},
		{dir: "localhost/route", files: []string{"check.go", "registry.go", "resolve.go", "connection.go", "pending.go"}, tests: []string{"localhost"}},
	}
}

// packagesFor are the packages whose tests are needed for the guards that only names:
// their own, and unless own is set those that stand above them.
func packagesFor(guards []*guard, only *regexp.Regexp, own bool) []string {
	var out []string
	for _, p := range path() {
		if !slices.ContainsFunc(guards, func(g *guard) bool { return g.dir == p.dir && only.MatchString(g.Key) }) {
			continue
		}
		tests := []string{p.dir}
		if !own {
			tests = append(tests, p.tests...)
		}
		for _, t := range tests {
			if !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	return out
}
