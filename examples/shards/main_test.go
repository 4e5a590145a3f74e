package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain runs the program if the program under test has started it as a worker.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && strings.HasPrefix(os.Args[2], "-worker=") {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// TestRun checks that the tenants are divided evenly among the workers that run.
func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), "", &out))
	t.Log(out.String())
	require.Regexp(t, `five workers start
  [1-5]{64}  after [0-9.]+ s
  worker 1: 1[23] worker 2: 1[23] worker 3: 1[23] worker 4: 1[23] worker 5: 1[23]
workers 2 and 4 are killed
  [135]{64}  after [0-9.]+ s
  worker 1: 2[12] worker 3: 2[12] worker 5: 2[12]
worker 6 starts
  [1356]{64}  after [0-9.]+ s
  worker 1: 16 worker 3: 16 worker 5: 16 worker 6: 16
tenant-07: worker [1356], with token [0-9]+
`, out.String())
}
