package stdio

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	readSize    = 64 << 10
	maxExpected = 4096 // requests of a client that have no answer yet
)

// Transport is one client, which writes to Reader and reads from Writer. Reader is closed
// with the connection, Writer is not. A goroutine stays in a Read that closing does not
// interrupt. It must not be used twice.
type Transport struct {
	Reader io.ReadCloser
	Writer io.Writer
	// MaxLine bounds a line, in bytes.
	MaxLine int
}

// Connect implements sdk.Transport.
func (t *Transport) Connect(context.Context) (sdk.Connection, error) {
	c := &conn{in: t.Reader, out: t.Writer, most: t.MaxLine, lines: make(chan line), closed: make(chan struct{}), expected: map[jsonrpc.ID]*batch{}}
	go c.read()
	return c, nil
}

// conn is a connection.
type conn struct {
	in     io.ReadCloser
	most   int
	lines  chan line
	closed chan struct{}
	once   sync.Once
	err    error // of closing

	queue []jsonrpc.Message // owned by Read

	mu       sync.Mutex // guards what follows, and writes
	out      io.Writer
	expected map[jsonrpc.ID]*batch // requests that have no answer yet, with the batch that they came in
	hello    jsonrpc.ID            // of the request that begins everything
	greeted  bool
	batches  bool // the version of the protocol has them
}

// read reads lines until the input or the connection ends.
func (c *conn) read() {
	r := bufio.NewReaderSize(c.in, readSize)
	for {
		data, err := readLine(r, c.most)
		if err == nil && len(data) == 0 {
			continue
		}
		select {
		case c.lines <- line{data, err}:
		case <-c.closed:
			return
		}
		if err != nil && !errors.Is(err, errLong) {
			return
		}
	}
}

// Read implements sdk.Connection: what is no message is answered here.
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(c.queue) > 0 {
			m := c.queue[0]
			c.queue = c.queue[1:]
			return m, nil
		}
		select {
		case <-ctx.Done():
		case <-c.closed:
			return nil, io.EOF
		case l := <-c.lines:
			if err := c.take(l); err != nil {
				return nil, err
			}
		}
	}
}

// take queues the messages of a line.
func (c *conn) take(l line) error {
	if errors.Is(l.err, errLong) {
		return c.reject(json.RawMessage(noID), invalid(fmt.Sprintf("a message is at most %d bytes", c.most)))
	}
	if l.err != nil {
		return l.err
	}
	if !utf8.Valid(l.data) || !json.Valid(l.data) {
		return c.reject(json.RawMessage(noID), &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "parse error: a line is one JSON value"})
	}
	if all := []json.RawMessage(nil); l.data[0] == '[' && json.Unmarshal(l.data, &all) == nil {
		return c.takeBatch(all)
	}
	m, id, fault := message(l.data)
	if fault == nil {
		c.mu.Lock()
		id, fault = c.expect(m, id, nil)
		c.mu.Unlock()
	}
	if fault != nil {
		return c.reject(id, fault)
	}
	c.queue = append(c.queue, m)
	return nil
}

// Write implements sdk.Connection.
func (c *conn) Write(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	response, ok := m.(*jsonrpc.Response)
	if !ok {
		return c.writeMessage(m)
	}
	b := c.expected[response.ID]
	delete(c.expected, response.ID)
	if response.Error != nil {
		response = &jsonrpc.Response{ID: response.ID, Error: coded(response.Error, c.greeted)}
	} else if response.ID == c.hello {
		c.greet(response.Result)
	}
	if b == nil {
		return c.writeMessage(response)
	}
	data, err := jsonrpc.EncodeMessage(response)
	if err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	b.out = append(b.out, data)
	if b.left--; b.left > 0 {
		return nil
	}
	return c.writeBatch(b)
}

// greet notes which version was agreed on. The caller holds mu.
func (c *conn) greet(result json.RawMessage) {
	var r struct {
		Version string `json:"protocolVersion"`
	}
	c.greeted = true
	c.batches = json.Unmarshal(result, &r) == nil && hasBatches(r.Version)
}

func (c *conn) writeMessage(m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return c.writeLine(data)
}

func (c *conn) reject(id json.RawMessage, fault *jsonrpc.Error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refuse(id, fault)
}

// refuse answers what is no message. The caller holds mu.
func (c *conn) refuse(id json.RawMessage, fault *jsonrpc.Error) error {
	return c.writeLine(answer(id, fault))
}

func (c *conn) writeLine(data []byte) error {
	_, err := c.out.Write(append(data, '\n'))
	return err
}

// Close implements sdk.Connection.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.err = c.in.Close()
		close(c.closed)
	})
	return c.err
}

// SessionID implements sdk.Connection: there is one client, and it has none.
func (c *conn) SessionID() string { return "" }
