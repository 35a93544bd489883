package stdio

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// noID is the ID of an answer to who has said none that can be told.
const noID = "null"

// maxID is the greatest number that every reader of JSON holds exactly.
const maxID = 1<<53 - 1

// message reads one message. Else fault says what is wrong, and id whose it was: only a
// request is answered by its own ID, since the ID of an answer is not the sender's.
func message(raw json.RawMessage) (m jsonrpc.Message, id json.RawMessage, fault *jsonrpc.Error) {
	id = json.RawMessage(noID)
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members) // it is JSON
	if members == nil {
		return nil, id, invalid("a message is an object")
	}
	said, has := members["id"]
	if has && !identifies(said) {
		return nil, id, invalid("an id is a string or a whole number of at most 53 bits")
	}
	m, err := jsonrpc.DecodeMessage(raw)
	if err == nil {
		return m, said, nil
	}
	if _, asks := members["method"]; asks && has {
		id = said
	}
	return nil, id, invalid("no message of JSON-RPC 2.0")
}

// identifies tells IDs that come back as they were said.
func identifies(raw json.RawMessage) bool {
	if raw[0] == '"' {
		return true
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	return err == nil && n == math.Trunc(n) && math.Abs(n) <= maxID
}

func invalid(why string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "invalid request: " + why}
}

// answer is the line of an error, without its end.
func answer(id json.RawMessage, fault *jsonrpc.Error) json.RawMessage {
	data, _ := json.Marshal(struct { //nolint:errchkjson // the id is JSON that was read
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *jsonrpc.Error  `json:"error"`
	}{"2.0", id, fault})
	return data
}

// coded gives an error a code of JSON-RPC if it has none: before the client was greeted
// its request came too early, afterwards it is ours.
func coded(err error, greeted bool) error {
	var wire *jsonrpc.Error
	if errors.As(err, &wire) && wire.Code != 0 {
		return err
	}
	code := int64(jsonrpc.CodeInternalError)
	if !greeted {
		code = jsonrpc.CodeInvalidRequest
	}
	return &jsonrpc.Error{Code: code, Message: err.Error()}
}
