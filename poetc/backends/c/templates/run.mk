<# Pieces of a Makefile that run a program on the data that come with it. #>
<% macro compare_rule(name, step, compiler) %>
<% if step.sources %>

# TOLERANCE is what results may differ by, relative to the largest element that is expected.
TOLERANCE ?= << '%g' % step.tolerance >>

<< name >>_compare: << step.sources|sort|join(" ") >> Makefile
	<< compiler >> -o $@ << COMPARE >>
<% endif %>
<% endmacro %>
<% macro compared(name, step) %><< " " ~ name ~ "_compare" if step.sources else "" >><% endmacro %>
<% macro copy(step) %>
<% if step.stored %>
	cp $(DATA)/<< IMAGE >> $(DATA)/<< STORAGE >>
<% endif %>
<% endmacro %>
<% macro compare(name, step) %>
<% if step.sources %>
	$(if $(filter 1,$(STEPS)),./<< name >>_compare $(DATA) $(TOLERANCE),@echo 'not compared: the results that are expected are those of one step')
<% endif %>
<% endmacro %>
