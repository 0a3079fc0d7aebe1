// The program that builds what is released, pinned apart from the product.
module github.com/converge-engine/converge/tools/release

go 1.26.8

require (
	github.com/cpuguy83/go-md2man/v2 v2.0.7
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/russross/blackfriday/v2 v2.1.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
