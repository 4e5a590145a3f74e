// Command typecheck checks the types of packages, and of their tests, for another platform:
//
//	go run ./typecheck -platform linux/386 [-tests] [-C DIR] PACKAGE...
//
// It finds what differs between platforms, such as a function that a file for another system lacks, and a constant
// that an int of 32 bits cannot hold. It takes a fraction of the compiler's time, because it generates no code, and
// skips the bodies of functions outside of DIR. "make cross" compiles them as well. Run it in the module tools.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	platform := flag.String("platform", "", "`GOOS/GOARCH`")
	tests := flag.Bool("tests", false, "check the tests of the packages as well")
	dir := flag.String("C", "..", "`directory` of the module or workspace")
	flag.Parse()
	log.SetFlags(0)
	errs, err := check(*dir, *platform, *tests, flag.Args())
	if err != nil {
		log.Fatalf("check types for %s: %v", *platform, err)
	}
	for _, err := range errs {
		log.Printf("%s: %v", *platform, err)
	}
	if len(errs) > 0 {
		os.Exit(1)
	}
}

// check returns the errors in the packages that match the patterns, for a platform "GOOS/GOARCH".
func check(dir, platform string, tests bool, patterns []string) (errs []error, err error) {
	system, architecture, ok := strings.Cut(platform, "/")
	if !ok {
		return nil, fmt.Errorf("platform %q is not GOOS/GOARCH", platform)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	loaded, err := packages.Load(&packages.Config{
		// Without NeedDeps, Load reads what the compiler has written for the dependencies.
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
		if strings.HasSuffix(p.PkgPath, ".test") { // the main package that the go command generates
			continue
		}
		for _, e := range p.Errors {
			errs = append(errs, e)
		}
	}
	return errs, nil
}

// removeBodies removes the bodies of all functions. The types of what other packages can use stay the same.
func removeBodies(f *ast.File) {
	for _, d := range f.Decls {
		if function, ok := d.(*ast.FuncDecl); ok {
			function.Body = nil
		}
	}
}
