package link

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

func TestRefusedError_ContainsReasonTextAndCause(t *testing.T) {
	cause := errors.New("the cause")
	err := &RefusedError{Reason: ReasonRemoved, Text: "by entry 7", Err: cause}
	require.ErrorIs(t, err, api.ErrRefused)
	require.ErrorIs(t, err, cause)
	require.Contains(t, err.Error(), "new ID")
	require.Contains(t, err.Error(), "(by entry 7)")
	require.Contains(t, Reason(99).String(), "99")
	for r := range ReasonRunning {
		require.NotContains(t, (r + 1).String(), "does not know")
	}
	require.Equal(t, "raft snapshot client stream Purpose(9)",
		strings.Join([]string{PurposeRaft.String(), PurposeSnapshot.String(), PurposeClient.String(), PurposeStream.String(), Purpose(9).String()}, " "))
}

// TestRefusedError_IsPrintable checks that the text that a peer has sent cannot control the terminal on
// which the error is shown.
func TestRefusedError_IsPrintable(t *testing.T) {
	err := &RefusedError{Reason: ReasonRemoved, Text: "\x1b]52;c;x\a\nanother line", Proven: true}
	require.NotContains(t, err.Error(), "\x1b")
	require.NotContains(t, err.Error(), "\n")
	require.NotErrorIs(t, err, api.ErrUnproven)
}
