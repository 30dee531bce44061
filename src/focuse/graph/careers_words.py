"""The names in the careers graph, by field and kind, all written for this library.

Names are parted by ';'. A name marked '@field' belongs to that second field as well.
"""

from typing import Final

WORDS: Final[dict[str, dict[str, str]]] = {
    "health": {
        "job": """Ward Nurse; Paediatric Nurse; General Practitioner; Heart Surgeon; Dental Hygienist; Physiotherapist;
            Hospital Pharmacist @science; Midwife; Paramedic @logistics; Radiographer @engineering;
            Speech Therapist @education; Clinical Data Analyst @software; Ward Manager; Optometrist;
            Nutrition Adviser @food; Infection Control Officer""",
        "skill": """patient communication; wound care; clinical judgement; dosage calculation; infection prevention;
            anatomy; triage @logistics; empathic listening @education; medical record keeping""",
        "task": """take a patient history; dress a surgical wound; check a prescription; plan a discharge from hospital;
            read a chest X-ray; give a vaccination; monitor vital signs; explain a diagnosis to a family;
            prepare an operating theatre; fit a hearing aid; screen newborns for jaundice; coach a stroke patient;
            stabilise a casualty at the roadside @logistics; draw a blood sample @science;
            design a diet for a diabetic patient @food; code diagnoses in a patient register @software""",
        "tool": """stethoscope; ultrasound scanner @engineering; infusion pump; blood pressure cuff; pulse oximeter;
            surgical clamp; electronic patient record @software; defibrillator""",
    },
    "software": {
        "job": """Backend Developer; Front-End Developer @media; Database Administrator; Site Reliability Engineer;
            Mobile App Developer; Security Analyst; Machine Learning Engineer @science; Test Automation Engineer;
            Embedded Software Developer @engineering; Data Warehouse Architect; Technical Writer @media;
            Payments Developer @finance; Product Owner; Network Administrator; Game Programmer @media;
            Scrum Coach @education""",
        "skill": """programming in Python; relational data modelling; debugging; system design; test design;
            threat modelling; statistical learning @science; requirements analysis; version control""",
        "task": """review a pull request; tune a slow query; migrate a database; write unit tests;
            design a public interface for a service; triage a bug report; roll back a failed release;
            set up a build pipeline; patch a security hole; train a classifier @science;
            write a device driver @engineering; document an application @media; plan a sprint; trace a memory leak;
            model the data of a new product; automate an invoice import @finance""",
        "tool": """code editor; debugger; container platform; issue tracker; relational database;
            network packet sniffer @engineering; notebook server @science; continuous integration server""",
    },
    "building": {
        "job": """Bricklayer; Site Foreman; Roofer; Structural Engineer @engineering; Architect @media; Plumber;
            House Electrician @engineering; Quantity Surveyor @finance; Carpenter; Crane Operator @logistics;
            Façade Designer; Plasterer; Building Inspector; Land Surveyor @science; Floor Tiler; Heating Installer""",
        "skill": """blueprint reading; structural calculation @engineering; joinery; masonry; site safety;
            cost estimation @finance; spatial planning; pipe fitting; knowledge of building codes""",
        "task": """pour a foundation; lay a course of bricks; frame a timber wall; survey a building plot @science;
            check a load-bearing beam @engineering; tile a bathroom floor; wire a distribution board @engineering;
            draw up a floor plan; inspect a scaffold; insulate a loft; price a renovation @finance;
            schedule trades on a site @logistics; seal a flat roof; install a boiler; plaster a ceiling;
            apply for a planning permit""",
        "tool": """theodolite @science; spirit level; concrete mixer; circular saw; tower crane @logistics;
            pipe wrench; laser distance meter; building information model @engineering""",
    },
    "finance": {
        "job": """Auditor; Tax Adviser; Payroll Clerk; Credit Risk Analyst @science; Mortgage Broker; Actuary @science;
            Portfolio Manager; Insurance Underwriter; Financial Controller; Fraud Investigator @software;
            Treasury Analyst; Bank Branch Manager; Procurement Officer @logistics; Bookkeeper;
            Business Journalist @media; Trading Systems Analyst @software""",
        "skill": """negotiation @logistics; financial reporting; budgeting; risk assessment; tax law; auditing;
            forecasting @science; spreadsheet modelling; attention to detail @software""",
        "task": """close the monthly accounts; reconcile a bank statement; prepare a tax return; value a property loan;
            audit an expense claim; price an insurance policy; build a cash flow forecast;
            assess a credit application; negotiate a supply contract @logistics; report to shareholders;
            run the payroll; rebalance an investment portfolio; investigate a suspicious transfer @software;
            model the risk of default @science; advise a client on pensions; draft an annual budget""",
        "tool": """spreadsheet; accounting ledger software @software; market data terminal; payroll system;
            credit scoring model @science; tax filing portal; expense scanner; currency calculator""",
    },
    "science": {
        "job": """Marine Biologist; Research Chemist; Field Geologist; Particle Physicist @engineering; Meteorologist;
            Laboratory Technician @health; Geneticist @health; Ecologist; Biostatistician @health; Astronomer;
            Soil Scientist @food; Science Communicator @media; Computational Chemist @software;
            Materials Scientist @engineering; University Lecturer @education; Epidemiologist @health""",
        "skill": """experimental design; statistical inference; laboratory technique; scientific writing @media;
            microscopy; field sampling; hypothesis testing; chemical analysis; numerical simulation @software""",
        "task": """titrate a sample; sequence a genome @health; calibrate an instrument @engineering;
            collect water samples; write a research paper; analyse survey data; count plankton under a microscope;
            map a rock formation; simulate a chemical reaction @software; observe a variable star;
            apply for a research grant; review a manuscript; track animal migration; test soil for nutrients @food;
            model the spread of an epidemic @health; forecast the weather""",
        "tool": """electron microscope; spectrum analyser @engineering; gas chromatograph; centrifuge @health;
            telescope; statistics package @software; pipette; weather balloon""",
    },
    "education": {
        "job": """Primary School Teacher; Secondary School Teacher; Special Needs Teacher @health; School Principal;
            Kindergarten Teacher; Language Tutor @media; Careers Adviser; School Librarian @media;
            Curriculum Developer; Teaching Assistant; School Psychologist @health; Music Teacher @media;
            Vocational Instructor @engineering; Learning Designer @software; Adult Literacy Coach;
            Driving Instructor @logistics""",
        "skill": """lesson planning; classroom management; mentoring; storytelling @media; assessment design;
            conflict mediation; child development; public speaking @media; giving feedback""",
        "task": """plan a lesson; mark an essay; hold a parents' evening; teach a child to read; set an examination;
            lead a class discussion; write a school report; mentor a trainee teacher;
            adapt material for a pupil with dyslexia; organise a school trip @logistics;
            build an online course @software; counsel a worried pupil @health; rehearse a school choir @media;
            demonstrate a workshop machine @engineering; observe a colleague's class; revise a curriculum""",
        "tool": """interactive whiteboard; learning platform @software; flash cards; grade book; reading primer;
            school timetable planner @logistics; plagiarism checker; picture book @media""",
    },
    "food": {
        "job": """Pâtissier; Head Chef; Sous-Chef; Baker; Butcher; Sommelier; Restaurant Manager @finance; Barista;
            Food Technologist @science; Dairy Farmer; Vegetable Grower; Cheese Maker; Canteen Cook;
            Catering Planner @logistics; Food Critic @media; Maître d'Hôtel""",
        "skill": """menu planning; knife skills; food hygiene @health; flavour pairing; dough handling;
            crop husbandry @science; guest service; portion costing @finance; crème and custard making""",
        "task": """bake a sourdough loaf; season a sauce; bone a joint of meat; plate a dessert; temper chocolate;
            order fresh produce @logistics; pair wine with a menu; clean down a kitchen; welcome guests to a table;
            test milk for bacteria @science; harvest salad crops; cost a new dish @finance; label allergens @health;
            cater for a wedding; brew an espresso; photograph a dish for a menu @media""",
        "tool": """convection oven; dough mixer; chef's knife; espresso machine; food thermometer @health;
            sous-vide bath; milking machine; table booking system""",
    },
    "media": {
        "job": """News Editor; Film Director; Sound Engineer @engineering; Graphic Designer; Illustrator; Copywriter;
            Photojournalist; Animator @software; Radio Presenter; Museum Curator @education; Stage Manager @logistics;
            Literary Translator @education; Video Editor; Advertising Planner @finance; Costume Designer;
            User Experience Designer @software""",
        "skill": """copy editing; visual composition; interviewing; typography; film editing; creative writing;
            audio mixing @engineering; audience research; animation @software""",
        "task": """edit a news story; light a film set; record a voice-over; lay out a magazine page;
            interview a witness; storyboard a commercial; translate a novel @education; retouch a portrait;
            mix a live concert @engineering; curate an exhibition @education; pitch a campaign to a client @finance;
            animate a character @software; write a headline; cut a film trailer; sketch a costume; host a radio show""",
        "tool": """film camera; mixing desk @engineering; drawing tablet; photo editing suite; studio microphone;
            page layout program; teleprompter; motion capture rig @software""",
    },
    "logistics": {
        "job": """Lorry Driver; Warehouse Manager; Freight Forwarder; Airline Pilot @engineering; Ship's Captain;
            Train Dispatcher; Customs Broker @finance; Supply Chain Planner @finance; Forklift Operator;
            Air Traffic Controller; Courier; Harbour Pilot; Fleet Mechanic @engineering; Stock Controller;
            Route Planning Analyst @software; Removals Foreman @building""",
        "skill": """route planning; inventory control; load securing; scheduling; customs procedure @finance;
            vehicle handling; radio communication; navigation; demand planning @finance""",
        "task": """load a container; plan a delivery route; clear goods through customs @finance; count the stock;
            dispatch a freight train; dock a ferry; guide an aircraft to land; inspect a lorry before a trip;
            pick an order in a warehouse; track a late parcel; book cargo space; secure an oversized load @building;
            optimise a delivery network @software; replace a brake pad @engineering; log driving hours;
            train a new driver @education""",
        "tool": """forklift truck; barcode scanner; tachograph; warehouse management system @software; pallet jack;
            radar display @engineering; nautical chart; route planner @software""",
    },
    "engineering": {
        "job": """Mechanical Engineer; Machinist; Welder @building; Robotics Engineer @software; Aerospace Engineer;
            Process Engineer @science; Quality Inspector; Maintenance Technician; Tool and Die Maker;
            Chemical Plant Operator @science; Electronics Designer; Production Planner @logistics;
            CAD/CAM Specialist @software; Power Grid Engineer; Prosthetics Engineer @health;
            Hydraulic Excavator Mechanic @building""",
        "skill": """CAD/CAM; thermodynamics @science; fault finding; welding @building; circuit design;
            control theory @software; precision measurement; process optimisation; equipment maintenance""",
        "task": """draft a maintenance plan; mill a steel part; weld a pipe joint @building;
            program a robot arm @software; test a circuit board; measure a tolerance; balance a turbine;
            replace a worn bearing; run a fatigue test @science; start up a production line; design a gearbox;
            diagnose a motor fault; set up a lathe; prototype an artificial limb @health;
            plan a production batch @logistics; size a power transformer""",
        "tool": """CNC lathe; oscilloscope; arc welder @building; coordinate measuring machine; torque wrench;
            3D printer; programmable logic controller @software; finite element solver @science""",
    },
}
