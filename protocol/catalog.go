package protocol

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	lendv1 "github.com/lendcli/lend/proto/lend/v1"
	"github.com/lendcli/lend/protocol/name"
)

// CatalogRequest asks what a lease may run. Lease is a chain, root first.
type CatalogRequest struct{ Lease [][]byte }

// CatalogEntry describes one command that a lease may run.
type CatalogEntry struct {
	Connector name.ConnectorKey
	Version   name.Version
	Command   name.Command
	// Summary is one line of UTF-8 without control characters, at most 1 KiB.
	Summary string
	// Effect is "read", "write" or empty.
	Effect string
	// InputSchema is the JSON Schema of the arguments as one object, at most
	// 64 KiB; it may be empty.
	InputSchema json.RawMessage
	// Stdin tells whether the command takes standard input.
	Stdin  bool
	Limits Limits
}

// WriteCatalogRequest sends q with one Write.
func WriteCatalogRequest(w io.Writer, q *CatalogRequest) error {
	if v := checkChain(q.Lease, 1); v != nil {
		return fmt.Errorf("encode request: %w", v)
	}
	return writeMessage(w, &lendv1.CatalogRequest{Lease: q.Lease}, MaxRequest)
}

// ReadCatalogRequest reads the one request of a catalogue stream. Errors are
// those of Reader.Read. spec: CATALOG-1
func ReadCatalogRequest(r io.Reader) (*CatalogRequest, error) {
	var m lendv1.CatalogRequest
	if err := readMessage(r, &m, MaxRequest); err != nil {
		return nil, err
	}
	if v := checkChain(m.GetLease(), 1); v != nil {
		return nil, v
	}
	return &CatalogRequest{Lease: m.GetLease()}, nil
}

// WriteCatalog answers a CatalogRequest with at most MaxCatalogEntries entries.
func WriteCatalog(w io.Writer, entries []CatalogEntry) error {
	if len(entries) > MaxCatalogEntries {
		return fmt.Errorf("encode catalogue: %d entries where %d are allowed", len(entries), MaxCatalogEntries)
	}
	out := bufio.NewWriterSize(w, MaxFrame)
	for i := range entries {
		if v := checkEntry(&entries[i]); v != nil {
			return fmt.Errorf("encode catalogue: %w", v)
		}
		m := &lendv1.CatalogFrame{Frame: &lendv1.CatalogFrame_Entry{Entry: entryToProto(&entries[i])}}
		if err := writeMessage(out, m, MaxCatalogEntry); err != nil {
			return err
		}
	}
	end := &lendv1.CatalogFrame{Frame: &lendv1.CatalogFrame_End{
		End: &lendv1.CatalogEnd{Entries: uint32(len(entries))},
	}}
	if err := writeMessage(out, end, MaxCatalogEntry); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write catalogue: %w", err)
	}
	return nil
}

// WriteCatalogRefused answers a CatalogRequest with a refusal.
func WriteCatalogRefused(w io.Writer, r *Refused) error {
	if v := checkRefused(r); v != nil {
		return fmt.Errorf("encode refusal: %w", v)
	}
	return writeMessage(w, &lendv1.CatalogFrame{
		Frame: &lendv1.CatalogFrame_Refused{Refused: refusedToProto(r)},
	}, MaxFrame)
}

// ReadCatalog reads the answer to a CatalogRequest. A refusal is a *Refusal;
// other errors are those of Reader.Read. An answer without its end is never a
// shorter catalogue. spec: CATALOG-2
func ReadCatalog(r io.Reader) ([]CatalogEntry, error) {
	var entries []CatalogEntry
	for {
		entry, err := readCatalogFrame(r, len(entries))
		switch {
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case entry == nil:
			return entries, nil
		case len(entries) == MaxCatalogEntries:
			return nil, violation("CATALOG-2", "too many entries")
		}
		entries = append(entries, *entry)
	}
}

// readCatalogFrame returns nil for the end, which must name seen entries.
func readCatalogFrame(r io.Reader, seen int) (*CatalogEntry, error) {
	var m lendv1.CatalogFrame
	if err := readMessage(r, &m, MaxCatalogEntry); err != nil {
		return nil, err
	}
	switch m := m.GetFrame().(type) {
	case *lendv1.CatalogFrame_Entry:
		e, err := entryFromProto(m.Entry)
		if err != nil {
			return nil, &ViolationError{Rule: "CATALOG-3", Msg: err.Error()}
		}
		if v := checkEntry(e); v != nil {
			return nil, v
		}
		return e, nil
	case *lendv1.CatalogFrame_End:
		if m.End.GetEntries() != uint32(seen) {
			return nil, violation("CATALOG-2", "entries are missing")
		}
		return nil, nil //nolint:nilnil // the end
	case *lendv1.CatalogFrame_Refused:
		f, err := refusedFromProto(m.Refused)
		if err != nil || seen > 0 {
			return nil, violation("CATALOG-2", "a refusal that cannot be")
		}
		if v := checkRefused(f); v != nil {
			return nil, v
		}
		return nil, f.Err()
	}
	return nil, violation("CATALOG-2", "no frame")
}

func entryToProto(e *CatalogEntry) *lendv1.CatalogEntry {
	return &lendv1.CatalogEntry{
		Connector: e.Connector.String(), Version: e.Version.String(), Command: e.Command.String(),
		Summary: e.Summary, Effect: e.Effect, InputSchema: e.InputSchema, Stdin: e.Stdin,
		Limits: limitsToProto(e.Limits),
	}
}

func entryFromProto(m *lendv1.CatalogEntry) (*CatalogEntry, error) {
	e := &CatalogEntry{Summary: m.GetSummary(), Effect: m.GetEffect(), InputSchema: orNil(m.GetInputSchema()), Stdin: m.GetStdin()}
	var err error
	if e.Connector, err = name.ParseConnectorKey(m.GetConnector()); err != nil {
		return nil, err
	}
	if e.Version, err = name.ParseVersion(m.GetVersion()); err != nil {
		return nil, err
	}
	if e.Command, err = name.ParseCommand(m.GetCommand()); err != nil {
		return nil, err
	}
	if m.GetLimits() == nil {
		return nil, errors.New("no limits")
	}
	e.Limits, err = limitsFromProto(m.GetLimits())
	return e, err
}

// checkEntry: spec: CATALOG-3.
func checkEntry(e *CatalogEntry) *ViolationError {
	switch {
	case e.Connector.IsZero() || e.Version.IsZero() || e.Command.IsZero():
		return violation("CATALOG-3", "a name is missing")
	case len(e.Summary) > maxSummary || !utf8.ValidString(e.Summary) || strings.ContainsFunc(e.Summary, unicode.IsControl):
		return violation("CATALOG-3", "a summary that is too long or not one line of text")
	case e.Effect != "" && e.Effect != "read" && e.Effect != "write":
		return violation("CATALOG-3", "no such effect")
	case len(e.InputSchema) > maxSchema || len(e.InputSchema) > 0 && !json.Valid(e.InputSchema):
		return violation("CATALOG-3", "a schema that is too long or not JSON")
	}
	return checkLimits(e.Limits)
}
