package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// entryPrinter prints entries in the format text, hex or json.
type entryPrinter struct {
	out    io.Writer
	format string
}

const formats = "text, hex or json"

func newPrinter(out io.Writer, format string) (entryPrinter, error) {
	switch format {
	case "text", "hex", "json":
		return entryPrinter{out, format}, nil
	}
	return entryPrinter{}, newUsageError("--format %q: must be one of %s", format, formats)
}

// jsonEntry is the JSON representation of an entry.
type jsonEntry struct {
	Index     uint64     `json:"index"`
	Term      uint64     `json:"term"`
	Kind      string     `json:"kind"`
	ID        string     `json:"id,omitempty"`
	Time      *time.Time `json:"time,omitempty"`
	Size      int        `json:"size"` // the size of the data in bytes
	Data      *string    `json:"data,omitempty"`
	Hex       string     `json:"hex,omitempty"` // the data in hexadecimal if the data is not UTF-8; then Data is nil
	Skipped   bool       `json:"skipped,omitempty"`
	Committed *bool      `json:"committed,omitempty"`
}

// printEntry prints an entry. committed says whether the entry is committed; it is nil if the command prints
// only committed entries.
func (p entryPrinter) printEntry(e api.Entry, committed *bool) error {
	if p.format == "json" {
		l := jsonEntry{Index: e.Index, Term: e.Term, Kind: e.Kind.String(), Size: len(e.Data), Skipped: e.Skipped, Committed: committed}
		if !e.ID.IsZero() {
			l.ID = e.ID.String()
		}
		if !e.Time.IsZero() {
			t := e.Time.UTC()
			l.Time = &t
		}
		if text := string(e.Data); utf8.ValidString(text) {
			l.Data = &text
		} else {
			l.Hex = hex.EncodeToString(e.Data)
		}
		return p.printJSON(l)
	}
	id, at := "-", "-"
	if !e.ID.IsZero() {
		id = e.ID.String()
	}
	if !e.Time.IsZero() {
		at = e.Time.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	notes := ""
	if e.Skipped {
		notes = " skipped"
	}
	if committed != nil && !*committed {
		notes += " uncommitted?"
	}
	data := strconv.Quote(string(e.Data))
	if p.format == "hex" {
		data = hex.EncodeToString(e.Data)
	}
	_, err := fmt.Fprintf(p.out, "%d term=%d %s %s %s %dB%s %s\n", e.Index, e.Term, e.Kind, id, at, len(e.Data), notes, data)
	return err
}

// printJSON prints a value as one line of JSON.
func (p entryPrinter) printJSON(v any) error { return cmdline.WriteJSON(p.out, v) }
