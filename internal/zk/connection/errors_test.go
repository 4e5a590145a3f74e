package connection

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// TestCodes_MatchDocumentation checks that the table of error codes in docs/servers.md is equal to Codes.
func TestCodes_MatchDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../../docs/servers.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Error codes\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var rows, want []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| -") && !strings.HasPrefix(line, "| ---") {
			rows = append(rows, strings.TrimSpace(line))
		}
	}
	for _, c := range Codes {
		want = append(want, fmt.Sprintf("| %d | %s | %s | %s | %s |", c.Number, c.Name, c.Class, c.Meaning, c.Remedy))
	}
	require.Equal(t, want, rows)
}

// TestCodeOf_FindsWrappedCode checks that CodeOf finds each code of Codes, also in wrapped and joined errors, and
// that an unknown code is final.
func TestCodeOf_FindsWrappedCode(t *testing.T) {
	for _, c := range Codes {
		err := c.library
		if err == nil {
			err = fmt.Errorf("unknown error: %d", c.Number)
		}
		for _, err := range []error{err, fmt.Errorf("x: %w", err), errors.Join(errors.New("y"), fmt.Errorf("%w: %w", zk.ErrNoServer, err)), Refine(nil, err)} {
			require.Equal(t, c.Number, CodeOf(err).Number, "%v", err)
			require.Equal(t, c.Class == ClassPassing, IsPassing(err))
		}
	}
	require.Equal(t, ClassFinal, CodeOf(errors.New("unknown error: -999")).Class)
	for _, err := range []error{nil, zk.ErrConnectionClosed, zk.ErrNoServer, errors.New("unknown error: x"), errors.New("-125")} {
		require.Nil(t, CodeOf(err), "%v", err)
	}
}

// TestReject_WrapsErrorWithCodeServerAndRemedy checks that the error that Reject returns wraps the error for users
// and the error of the client library, and contains the code, the server and the remedy once. Reject must not
// change answers and transient errors.
func TestReject_WrapsErrorWithCodeServerAndRemedy(t *testing.T) {
	for _, c := range Codes {
		cause := c.library
		if cause == nil {
			cause = fmt.Errorf("unknown error: %d", c.Number)
		}
		err := Reject(t.Context(), nil, fmt.Errorf("create /x: %w", cause))
		require.ErrorIs(t, err, cause)
		if c.Class == ClassAnswer || c.Class == ClassTransient {
			require.Equal(t, "create /x: "+cause.Error(), err.Error())
			continue
		}
		if c.sentinel != nil {
			require.ErrorIs(t, err, c.sentinel)
		}
		require.Equal(t, err, Refine(nil, err))
		var rejected *Rejection
		require.ErrorAs(t, err, &rejected)
		rejected.Server = "zk1:2181"
		require.Contains(t, err.Error(), fmt.Sprintf("(%s %d from zk1:2181): %s", c.Name, c.Number, c.Remedy))
		require.NotContains(t, err.Error(), "unknown error")
	}
	require.EqualError(t, Refine(nil, errors.New("unknown error: -125")),
		"not permitted: the quota of a parent of the znode is exceeded (QUOTAEXCEEDED -125): raise the quota (setquota), or delete znodes below that parent")
	require.EqualError(t, Refine(nil, errors.New("unknown error: -999")), "the server rejects the request (-999): read the server's log")
	require.ErrorIs(t, Refine(nil, zk.ErrInvalidPath), ErrInvalid)
}
