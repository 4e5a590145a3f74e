//go:build unix

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestPrintEntry_EscapesControlCharacters checks that printEntry prints each entry on one line in the selected
// format, and escapes control characters.
func TestPrintEntry_EscapesControlCharacters(t *testing.T) {
	e := api.Entry{
		Index: 7, Term: 2, Kind: api.KindState, ID: api.RequestIDFrom(time.UnixMilli(1_700_000_000_000), 1, 2),
		Time: time.UnixMilli(1_700_000_000_500), Data: []byte("a\x1b[2J\n\xff"), Skipped: true,
	}
	committed := false
	print := func(format string, e api.Entry, committed *bool) string {
		var b strings.Builder
		p, err := newPrinter(&b, format)
		require.NoError(t, err)
		require.NoError(t, p.printEntry(e, committed))
		require.Equal(t, 1, strings.Count(b.String(), "\n"))
		require.NotContains(t, b.String(), "\x1b")
		return b.String()
	}
	require.Equal(t, "7 term=2 STATE "+e.ID.String()+` 2023-11-14T22:13:20.500Z 7B skipped uncommitted? "a\x1b[2J\n\xff"`+"\n", print("text", e, &committed))
	require.Contains(t, print("hex", e, nil), "7B skipped 611b5b324a0aff\n")
	require.Contains(t, print("json", e, nil), `"hex":"611b5b324a0aff"`)
	e.Data = []byte(`{"a":1}`)
	require.JSONEq(t, `{"index":7,"term":2,"kind":"STATE","id":"`+e.ID.String()+`","time":"2023-11-14T22:13:20.5Z","size":7,"data":"{\"a\":1}","skipped":true}`, print("json", e, nil))
	require.Equal(t, "8 term=3 CHECKPOINT - - 0B \"\"\n", print("text", api.Entry{Index: 8, Term: 3, Kind: api.KindCheckpoint}, nil))
}
