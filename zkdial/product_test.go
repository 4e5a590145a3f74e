package zkdial

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConnect_IsUsedByAllProductCode checks that only tests, their harnesses and benchmarks open connections
// without this package.
func TestConnect_IsUsedByAllProductCode(t *testing.T) {
	const root, library = "..", "github.com/go-zookeeper/zk"
	exempt := []string{"bench", "integrationtest", "internal/testenv", "zktest"}
	var places []string
	files := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(exempt, name) || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && name != "."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		local := ""
		for _, i := range file.Imports {
			if imported, _ := strconv.Unquote(i.Path.Value); imported == library {
				if local = "zk"; i.Name != nil {
					local = i.Name.Name
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Connect") {
				if x, ok := s.X.(*ast.Ident); ok && local != "" && x.Name == local {
					places = append(places, name)
				}
			}
			return true
		})
		return nil
	}))
	require.Greater(t, files, 300, "the repository was not found")
	require.Equal(t, []string{"zkdial/connect.go"}, places)
}
