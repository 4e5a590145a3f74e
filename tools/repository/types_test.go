package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCheckTypes_FindsErrorsOnOtherPlatforms checks that checkTypes finds errors that only the files for another
// platform, another word size or the tests contain.
func TestCheckTypes_FindsErrorsOnOtherPlatforms(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module example.com/m\n\ngo 1.26\n",
		"a.go":       "package m\n\nimport \"os\"\n\nvar Files = os.Args\n\nfunc Limit() int { return limit }\n",
		"a_linux.go": "package m\n\nconst limit = 1 << 40\n",
		"a_test.go":  "package m\n\nconst unused string = 1\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, c := range []struct {
		platform string
		tests    bool
		want     string // a part of one of the errors; "" if no error is expected
	}{
		{"linux/amd64", false, ""},
		{"linux/386", false, "overflows"},
		{"windows/amd64", false, "undefined: limit"},
		{"linux/amd64", true, "cannot use 1"},
	} {
		errs, err := checkTypes(dir, c.platform, c.tests, []string{"./..."})
		require.NoError(t, err)
		if c.want == "" {
			assert.Empty(t, errs, c.platform)
		} else {
			assert.Contains(t, fmt.Sprint(errs), c.want, c.platform)
		}
	}
	_, err := checkTypes(dir, "linux", false, []string{"./..."})
	require.ErrorContains(t, err, `platform "linux" is not GOOS/GOARCH`)
}
