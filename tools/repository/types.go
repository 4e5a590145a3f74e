package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

// runTypes checks the types of packages for another platform. It finds what differs between platforms, such as a
// function that a file for another system lacks, or a constant that an int of 32 bits cannot hold. It is several
// times faster than the compiler, because it generates no code, and skips the bodies of functions outside of the
// repository. "make cross" compiles these bodies as well.
func runTypes(args []string) error {
	flags := flag.NewFlagSet("types", flag.ExitOnError)
	platform := flags.String("platform", "", "`GOOS/GOARCH`")
	tests := flags.Bool("tests", false, "check the tests of the packages as well")
	if err := flags.Parse(args); err != nil {
		return err
	}
	errs, err := checkTypes("..", *platform, *tests, flags.Args())
	if err != nil {
		return fmt.Errorf("check types for %s: %w", *platform, err)
	}
	for _, err := range errs {
		fmt.Fprintf(os.Stderr, "%s: %v\n", *platform, err)
	}
	if len(errs) > 0 {
		return fmt.Errorf("errors for %s: %d", *platform, len(errs))
	}
	return nil
}

// checkTypes loads the packages that match the patterns for a platform "GOOS/GOARCH", and returns the errors of the
// type checker. dir is the directory of the module or workspace. If tests is true, checkTypes also loads the tests.
func checkTypes(dir, platform string, tests bool, patterns []string) (errs []error, err error) {
	system, architecture, ok := strings.Cut(platform, "/")
	if !ok {
		return nil, fmt.Errorf("platform %q is not GOOS/GOARCH", platform)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	loaded, err := packages.Load(&packages.Config{
		// Without NeedDeps, Load would read the types of the dependencies from the export data of the compiler.
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes,
		Dir:   dir,
		Env:   append(os.Environ(), "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0", "GOWORK="),
		Tests: tests,
		ParseFile: func(files *token.FileSet, name string, text []byte) (*ast.File, error) {
			f, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
			if f != nil && !strings.HasPrefix(name, dir+string(filepath.Separator)) {
				removeBodies(f)
			}
			return f, err
		},
	}, patterns...)
	if err != nil {
		return nil, err
	}
	for _, p := range loaded {
		if strings.HasSuffix(p.PkgPath, ".test") { // skip the main package of a test, which the go command generates
			continue
		}
		for _, e := range p.Errors {
			errs = append(errs, e)
		}
	}
	return errs, nil
}

// removeBodies removes the bodies of all functions, which other packages do not need to check their types.
func removeBodies(f *ast.File) {
	for _, d := range f.Decls {
		if function, ok := d.(*ast.FuncDecl); ok {
			function.Body = nil
		}
	}
}
