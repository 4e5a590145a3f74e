package cmdline

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable returns a text with escapes such as \n and \x1b instead of characters that are not printable, for
// output that people read: names, values and errors come from other programs, and a terminal could execute
// them. Characters that are invisible or change the direction of the text are not printable either.
func Printable(text string) string {
	if !strings.ContainsFunc(text, isUnprintable) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i, size := 0, 0; i < len(text); i += size {
		var r rune
		switch r, size = utf8.DecodeRuneInString(text[i:]); {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case isUnprintable(r):
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isUnprintable(r rune) bool { return !unicode.IsPrint(r) }

// WriteJSON writes a value as one line of JSON, in which characters that are not printable are escaped.
func WriteJSON(w io.Writer, value any) error {
	return json.NewEncoder(escapingWriter{w}).Encode(value)
}

// escapingWriter is a writer for complete lines of JSON. It escapes the characters that a terminal
// could execute and that package json does not escape. The values of the strings do not change.
type escapingWriter struct{ w io.Writer }

func (e escapingWriter) Write(line []byte) (int, error) {
	if _, err := e.w.Write(escapeJSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

func escapeJSON(line []byte) []byte {
	var b []byte
	copied := 0 // the number of bytes of line that b contains
	for i, r := range string(line) {
		if r < 0x7f || unicode.IsPrint(r) { // the character is printable, or package json has escaped it
			continue
		}
		b = append(b, line[copied:i]...)
		for _, unit := range utf16.Encode([]rune{r}) {
			b = fmt.Appendf(b, `\u%04x`, unit)
		}
		copied = i + utf8.RuneLen(r)
	}
	return append(b, line[copied:]...)
}
