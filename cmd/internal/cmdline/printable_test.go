package cmdline

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// hostile contains characters that a terminal could execute, or that hide others.
const hostile = "web-1\x1b]52;c;cm0=\x07\r\nX leads\x7f\u009b2J\u202e\u200b\U000e0001é"

// TestPrintable_ReplacesControlCharacters checks that Printable replaces each character that is not printable, and
// returns other texts unchanged.
func TestPrintable_ReplacesControlCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"":             "",
		"web-1":        "web-1",
		`C:\é 世界 🙂 '"`: `C:\é 世界 🙂 '"`,
		"a\xffb\x00c":  `a\xffb\x00c`,
		hostile:        `web-1\x1b]52;c;cm0=\a\r\nX leads\x7f\u009b2J\u202e\u200b\U000e0001é`,
	} {
		require.Equal(t, want, Printable(text))
	}
}

// TestWriteJSON_EscapesControlCharacters checks that WriteJSON and the logger write only printable characters, and
// that a JSON parser returns the original text.
func TestWriteJSON_EscapesControlCharacters(t *testing.T) {
	check := func(line []byte, key string) {
		t.Helper()
		require.Equal(t, 1, bytes.Count(line, []byte("\n")))
		require.False(t, bytes.ContainsFunc(bytes.TrimSpace(line), func(r rune) bool { return !unicode.IsPrint(r) }), "%q", line)
		var read map[string]any
		require.NoError(t, json.Unmarshal(line, &read))
		require.Equal(t, hostile, read[key])
	}
	var out bytes.Buffer
	require.NoError(t, WriteJSON(&out, map[string]string{"name": hostile}))
	check(out.Bytes(), "name")

	for _, format := range []string{"json", "text"} {
		out.Reset()
		log, err := NewLogger(&out, format, "info", slog.LevelInfo)
		require.NoError(t, err)
		log.Info("observed", "leader", hostile)
		if format == "json" {
			check(out.Bytes(), "leader")
		} else {
			require.False(t, bytes.ContainsFunc(bytes.TrimSpace(out.Bytes()), func(r rune) bool { return !unicode.IsPrint(r) }), "%q", out.Bytes())
		}
	}
}
