//go:build unix

package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestFitVariable_RemovesNoMoreThanNecessary checks that the result of fitVariable can be the value of an environment
// variable, and that fitVariable removes no more of the text than necessary.
func TestFitVariable_RemovesNoMoreThanNecessary(t *testing.T) {
	long := strings.Repeat("é", maxVariable)
	for text, want := range map[string]string{
		"":              "",
		"web 1\n\x1b":   "web 1\n\x1b",
		"a\x00b\x00c":   "a",
		"\x00":          "",
		"a\xff\xfeb":    "a\ufffdb",
		long:            long[:maxVariable],
		"x" + long:      "x" + long[:maxVariable-2],
		"\xff" + long:   "\ufffd" + long[:maxVariable-4],
		"a" + long[:10]: "a" + long[:10],
	} {
		got := fitVariable(text)
		require.Equal(t, want, got)
		require.True(t, utf8.ValidString(got))
	}
}

// TestHandlerEnvironment_FitsDataOfOtherCandidates checks that arbitrary data of another candidate cannot prevent
// that a command starts, and that elector logs once that it has removed a part of the data.
func TestHandlerEnvironment_FitsDataOfOtherCandidates(t *testing.T) {
	var log bytes.Buffer
	r := &runCommand{settings: &settings{log: slog.New(slog.NewTextHandler(&log, nil))}, grace: time.Second, sessionTimeout: func() time.Duration { return sessionTimeout }}
	file := t.TempDir() + "/value"
	for _, value := range []string{"a\x00b", strings.Repeat("A", 200<<10), "\xff", strings.Repeat("\xff", 200<<10)} {
		log.Reset()
		for range 2 {
			env := r.handlerEnvironment(roleFollower, &candidateInfo{Name: "web-1", Value: value}, nil, nil)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			require.NoError(t, r.runScript(ctx, "follower", `printf %s "$ELECTOR_LEADER $ELECTOR_LEADER_VALUE" > `+file, nil, env))
			cancel()
		}
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, "web-1 "+fitVariable(value), string(got))
		require.Equal(t, 1, strings.Count(log.String(), "variable=ELECTOR_LEADER_VALUE"), log.String())
		require.NotContains(t, log.String(), "variable=ELECTOR_LEADER ")
	}
}
