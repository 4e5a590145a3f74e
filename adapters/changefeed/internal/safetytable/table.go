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
	// Deployment is its name, without marks such as emphasis.
	Deployment string
	// Promise states whether at most one candidate is leader.
	Promise string
	// Start is the result of Start: "accepted", "refused", "refused: " with the name of the risk
	// that must be accepted, or "not checked".
	Start string
}

// Case sets up the deployment of a row.
type Case struct {
	// Start creates a store that accepts some risks, and returns the error of its Start.
	Start func(t *testing.T, accepted ...changefeed.Risk) error
	// NotChecked is the reason why Start cannot detect the deployment, if the row contains "not
	// checked". Start may be nil then.
	NotChecked string
}

// header contains the names of the columns of a table.
const header = "deployment|at most one leader?|`Start`"

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
		case strings.Join(cells, "|") == header:
			inTable = true
		case !inTable || strings.Trim(line, "|- ") == "":
		case len(cells) != 3:
			return nil, fmt.Errorf("%s: a row has %d cells, not 3: %s", section, len(cells), line)
		default:
			rows = append(rows, Row{plainText(cells[0]), plainText(cells[1]), plainText(cells[2])})
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: there is no table with the columns %s", section, header)
	}
	return rows, nil
}

// plainText returns the text of a cell without marks.
func plainText(cell string) string {
	return strings.NewReplacer("**", "", "`", "").Replace(cell)
}

// Sections returns the headings of the sections that have such a table.
func Sections(document string) []string {
	var sections []string
	for line := range strings.Lines(document) {
		if heading, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
			if _, err := Rows(document, heading); err == nil {
				sections = append(sections, heading)
			}
		}
	}
	return sections
}

// Document returns docs/changefeed-stores.md, which it searches in the parents of the working
// directory up to the root of the repository.
func Document(t testing.TB) string {
	t.Helper()
	for dir := "."; ; dir = filepath.Join("..", dir) {
		text, err := os.ReadFile(filepath.Join(dir, "docs", "changefeed-stores.md"))
		if err == nil {
			return string(text)
		}
		_, notRoot := os.Stat(filepath.Join(dir, "go.work"))
		require.Error(t, notRoot, "there is no docs/changefeed-stores.md in the repository: %v", err)
	}
}

// Check compares the table of a section with the results of the store's Start. There must be one
// case for each row, under the name of its deployment.
func Check(t *testing.T, section string, cases map[string]Case) {
	rows, err := Rows(Document(t), section)
	require.NoError(t, err)
	documented := map[string]bool{}
	for _, row := range rows {
		documented[row.Deployment] = true
		t.Run(row.Deployment, func(t *testing.T) {
			c, ok := cases[row.Deployment]
			require.True(t, ok, "the test has no case for this row of docs/changefeed-stores.md")
			checkRow(t, row, c)
		})
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		require.True(t, documented[name], "docs/changefeed-stores.md has no row %q", name)
	}
}

func checkRow(t *testing.T, row Row, c Case) {
	require.NoError(t, checkConsistency(row))
	riskName, needsRisk := strings.CutPrefix(row.Start, "refused: ")
	switch {
	case row.Start == "not checked":
		require.NotEmpty(t, c.NotChecked, "the case has no reason why Start cannot check the deployment")
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
	case needsRisk:
		accepted, err := changefeed.ParseRisk(riskName)
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

// checkConsistency returns an error if the columns of a row contradict each other: an accepted
// deployment must be safe, and a deployment that needs a risk must not.
func checkConsistency(row Row) error {
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
