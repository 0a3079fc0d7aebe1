package main

import (
	"bytes"
	"fmt"
	"os"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/licensedetect/local"
	"github.com/rs/zerolog"
)

// sbom returns what a program is made of, with licenses: a file in the format CycloneDX, JSON. It is read from the program itself, and the
// licenses from the modules that it was just built from.
func sbom(program string) ([]byte, error) {
	quiet := zerolog.Nop() // it warns that the licenses of the program's own module are nowhere
	generator, err := bin.NewGenerator(program, bin.WithIncludeStdlib(true), bin.WithLicenseDetector(local.NewDetector(quiet)), bin.WithLogger(quiet))
	if err != nil {
		return nil, err
	}
	defer set("GOPROXY", "off")() // no proxy has that module, and the others are here
	bom, err := generator.Generate()
	if err != nil {
		return nil, fmt.Errorf("SBOM: %w", err)
	}
	var out bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).Encode(bom)
	return out.Bytes(), err
}

// set changes a variable of the environment, until the returned function is called.
func set(name, value string) (restore func()) {
	before, was := os.LookupEnv(name)
	_ = os.Setenv(name, value) // the name is valid
	return func() {
		if was {
			_ = os.Setenv(name, before)
		} else {
			_ = os.Unsetenv(name)
		}
	}
}
