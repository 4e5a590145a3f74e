// Package safetytable checks the safety tables of docs/changefeed-stores.md: they list the
// deployments of a store, whether each is safe, and whether the store's Start accepts it.
package safetytable

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Row is a row of a table.
type Row struct {
	// Deployment names it, without marks such as emphasis.
	Deployment string
	// Promise is the answer to whether at most one candidate leads there.
	Promise string
	// Start is what Start does: "accepted", "refused", "refused: " with the name of the risk
	// that accepts it, or "not checked".
	Start string
}

// Case sets up the deployment of a row.
type Case struct {
	// Start makes a store that accepts some risks, and returns the error of its Start.
	Start func(t *testing.T, accepted ...changefeed.Risk) error
	// NotChecked is the reason for which Start cannot detect the deployment, where the row
	// has "not checked". Start may be nil then.
	NotChecked string
}

// columns are the heads of the tables.
const columns = "deployment|at most one leader?|`Start`"

// Rows returns the rows of the table in a section of the document. The section begins with
// a heading of its name and ends with the next heading.
func Rows(document, section string) ([]Row, error) {
	var rows []Row
	inSection, inTable := false, false
	for line := range strings.Lines(document) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			inSection, inTable = heading == section, false
			continue
		}
		if !inSection || !strings.HasPrefix(line, "|") {
			inTable = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(cell)
		}
		switch {
		case strings.Join(cells, "|") == columns:
			inTable = true
		case !inTable || strings.Trim(line, "|- ") == "":
		case len(cells) != 3:
			return nil, fmt.Errorf("%s: a row has %d cells, not 3: %s", section, len(cells), line)
		default:
			rows = append(rows, Row{plain(cells[0]), plain(cells[1]), plain(cells[2])})
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: there is no table with the columns %s", section, columns)
	}
	return rows, nil
}

func plain(cell string) string {
	return strings.NewReplacer("**", "", "`", "").Replace(cell)
}

// Sections returns the headings of the sections that have such a table.
func Sections(document string) []string {
	var all []string
	for line := range strings.Lines(document) {
		if heading, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
			if _, err := Rows(document, heading); err == nil {
				all = append(all, heading)
			}
		}
	}
	return all
}

// Document returns docs/changefeed-stores.md. The test runs below the repository's root.
func Document(t testing.TB) string {
	t.Helper()
	for dir := "."; ; dir = filepath.Join("..", dir) {
		text, err := os.ReadFile(filepath.Join(dir, "docs", "changefeed-stores.md"))
		if err == nil {
			return string(text)
		}
		_, end := os.Stat(filepath.Join(dir, "go.work"))
		require.Error(t, end, "there is no docs/changefeed-stores.md in the repository: %v", err)
	}
}

// Check compares the table of a section with what the store's Start does. Each row needs a
// case under the name of its deployment, and each case a row.
func Check(t *testing.T, section string, cases map[string]Case) {
	rows, err := Rows(Document(t), section)
	require.NoError(t, err)
	named := map[string]bool{}
	for _, row := range rows {
		named[row.Deployment] = true
		t.Run(row.Deployment, func(t *testing.T) {
			c, ok := cases[row.Deployment]
			require.True(t, ok, "the test has no case for this row of docs/changefeed-stores.md")
			checkRow(t, row, c)
		})
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		require.True(t, named[name], "docs/changefeed-stores.md has no row %q", name)
	}
}

func checkRow(t *testing.T, row Row, c Case) {
	require.NoError(t, coherent(row))
	name, risky := strings.CutPrefix(row.Start, "refused: ")
	switch {
	case row.Start == "not checked":
		require.NotEmpty(t, c.NotChecked, "the case says why Start cannot check it")
		if c.Start != nil {
			require.NoError(t, c.Start(t))
		}
	case row.Start == "accepted":
		require.NoError(t, c.Start(t))
	case row.Start == "refused":
		err := c.Start(t, changefeed.Risks()...)
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		require.NotErrorAs(t, err, new(*changefeed.UnsafeError))
		t.Log(err)
	case risky:
		accepted, err := changefeed.ParseRisk(name)
		require.NoError(t, err)
		others := slices.DeleteFunc(changefeed.Risks(), func(r changefeed.Risk) bool { return r == accepted })
		for _, risks := range [][]changefeed.Risk{nil, others} {
			var unsafe *changefeed.UnsafeError
			err := c.Start(t, risks...)
			require.ErrorAs(t, err, &unsafe)
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			require.Equal(t, []changefeed.Risk{accepted}, unsafe.Risks())
			for _, s := range unsafe.Settings {
				require.NotEmpty(t, s.Name)
				require.NotEmpty(t, s.Remedy)
			}
			t.Log(err)
		}
		require.NoError(t, c.Start(t, accepted))
	}
}

// coherent reports a row whose columns contradict each other: an accepted deployment is safe,
// and one that is refused for a risk is not.
func coherent(row Row) error {
	safe, unsafe := strings.HasPrefix(row.Promise, "yes"), strings.HasPrefix(row.Promise, "no")
	switch {
	case row.Start == "not checked" || row.Start == "refused":
		return nil
	case row.Start == "accepted" && safe:
		return nil
	case strings.HasPrefix(row.Start, "refused: ") && unsafe:
		return nil
	}
	return fmt.Errorf("%q: at most one leader: %q, but Start: %q", row.Deployment, row.Promise, row.Start)
}
