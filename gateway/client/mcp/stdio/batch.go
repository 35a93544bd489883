package stdio

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// batch is an array of messages that has yet to be answered, by an array.
type batch struct {
	left int // requests that have no answer yet
	out  []json.RawMessage
}

// hasBatches tells the versions of the protocol that have them.
func hasBatches(version string) bool { return version == "2024-11-05" || version == "2025-03-26" }

// takeBatch reads an array: what it asks for is queued, what is wrong is answered with
// the rest.
func (c *conn) takeBatch(all []json.RawMessage) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.batches || len(all) == 0 {
		return c.refuse(json.RawMessage(noID), invalid("no batches in this version of the protocol, and no empty ones"))
	}
	b := &batch{}
	for _, raw := range all {
		m, id, fault := message(raw)
		if fault == nil {
			id, fault = c.expect(m, id, b)
		}
		if fault == nil {
			c.queue = append(c.queue, m)
			continue
		}
		b.out = append(b.out, answer(id, fault))
	}
	if b.left == 0 && len(b.out) > 0 {
		return c.writeBatch(b)
	}
	return nil
}

// expect notes that m has to be answered; b is its batch, or nil. The caller holds mu.
func (c *conn) expect(m jsonrpc.Message, said json.RawMessage, b *batch) (id json.RawMessage, fault *jsonrpc.Error) {
	request, ok := m.(*jsonrpc.Request)
	if !ok || !request.IsCall() {
		return nil, nil
	}
	if _, used := c.expected[request.ID]; used {
		return json.RawMessage(noID), invalid("the id is that of a request that has no answer yet") // which one would it be?
	}
	if len(c.expected) >= maxExpected {
		return said, invalid("too many requests at once")
	}
	if b != nil {
		b.left++
	}
	c.expected[request.ID] = b
	if request.Method == "initialize" {
		c.hello = request.ID
	}
	return nil, nil
}

// writeBatch writes the answers of a batch. The caller holds mu.
func (c *conn) writeBatch(b *batch) error {
	data, _ := json.Marshal(b.out) //nolint:errchkjson // each is JSON that was written
	return c.writeLine(data)
}
